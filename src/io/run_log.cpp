#include "src/io/run_log.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string header_line(const RunHeader& header) {
    json record = {
        {"config", header.config}, {"device", header.device}, {"build", header.build}, {"command", header.command}};
    if (!header.tokenizer.is_null()) record["tokenizer"] = header.tokenizer;
    // A command line may hold bytes that are not UTF-8, but the log is still JSON.
    return record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Takes the first line, its end included, off `rest` and returns it; empty when no line ends.
std::string_view take_line(std::string_view& rest) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = end == std::string_view::npos ? std::string_view() : rest.substr(0, end + 1);
    rest.remove_prefix(line.size());
    return line;
}

json parse_line(std::string_view line) { return json::parse(line, nullptr, /*allow_exceptions=*/false); }

bool is_header(const json& record) { return record.is_object() && record.contains("config"); }

std::optional<std::int64_t> step_of(const json& record) {
    if (!record.is_object()) return std::nullopt;
    const auto step = record.find("step");
    if (step == record.end() || !step->is_number_integer()) return std::nullopt;
    return step->get<std::int64_t>();
}

}  // namespace

std::string json_number(double value) {
    if (!std::isfinite(value)) return "null";
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 9);
    return {digits.data(), end.ptr};
}

RunLog::RunLog(const fs::path& path)
    : file_(path, FileWriter::Mode::append), bytes_(static_cast<std::int64_t>(fs::file_size(path))) {}

RunLog RunLog::create(const fs::path& path, const RunHeader& header) {
    replace_file(path, bytes_of(header_line(header)));
    return RunLog(path);
}

RunLog RunLog::resume(const fs::path& path, std::int64_t step, const RunHeader& header) {
    return truncate_run_log(path, step) ? RunLog(path) : create(path, header);
}

void RunLog::write(const StepRecord& record) {
    write_line(text("{\"step\": ", record.step, ", \"loss\": ", json_number(record.loss),
                    ", \"grad_norm\": ", json_number(record.grad_norm), ", \"lr\": ", json_number(record.lr),
                    ", \"tokens\": ", record.tokens, ", \"ms\": ", json_number(record.ms),
                    ", \"tokens_per_s\": ", json_number(record.tokens_per_s), ", \"mfu\": ", json_number(record.mfu),
                    ", \"memory_gib\": ", json_number(record.memory_gib), ", \"loss_z\": ", json_number(record.loss_z),
                    ", \"norm_z\": ", json_number(record.norm_z),
                    record.skipped.empty() ? "" : text(", \"skipped\": ", json(record.skipped).dump()), "}\n"));
}

void RunLog::write_evaluation(const EvaluationRecord& record) {
    // A file's name may hold bytes that are not UTF-8.
    const std::string name = json(record.name).dump(-1, ' ', false, json::error_handler_t::replace);
    write_line(text("{\"step\": ", record.step, ", \"evaluation\": ", name, ", \"acc\": ", json_number(record.acc),
                    ", \"acc_norm\": ", json_number(record.acc_norm), ", \"examples\": ", record.examples, "}\n"));
}

void RunLog::write_validation(std::int64_t step, double val_loss) {
    write_line(text("{\"step\": ", step, ", \"val_loss\": ", json_number(val_loss), "}\n"));
}

void RunLog::write_line(const std::string& line) {
    try {
        file_.write(bytes_of(line));
    } catch (const Error&) {
        file_.truncate(bytes_);  // a full disk may have taken part of the line
        throw;
    }
    bytes_ += static_cast<std::int64_t>(line.size());
}

bool truncate_run_log(const fs::path& path, std::int64_t step) {
    std::error_code error;
    if (!fs::exists(path, error) && !error) return false;
    const std::string contents = read_file(path);
    std::string_view rest = contents;
    std::string kept(take_line(rest));
    if (!is_header(parse_line(kept))) return false;
    while (true) {
        const std::string_view line = take_line(rest);
        const auto found = step_of(parse_line(line));
        if (!found) break;
        if (*found <= step) kept += line;
    }
    replace_file(path, bytes_of(kept));
    return true;
}

}  // namespace coda
