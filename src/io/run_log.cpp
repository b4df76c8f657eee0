#include "src/io/run_log.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "src/core/utc_time.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json header_record(const RunHeader& header) {
    json record = {{"config", header.config},
                   {"device", header.device},
                   {"build", header.build},
                   {"command", header.command},
                   {"started", utc_now()}};
    if (!header.tokenizer.is_null()) record["tokenizer"] = header.tokenizer;
    return record;
}

/// A command line may hold bytes that are not UTF-8, but the log is still JSON.
std::string line_of(const json& record) { return record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

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

/// Writes `contents` next to `path` under the first free name.
fs::path keep_aside(const fs::path& path, const std::string& contents) {
    for (int number = 1;; ++number) {
        const fs::path aside = text(path.string(), ".damaged-", number);
        if (is_name_taken(aside)) continue;
        replace_file(aside, bytes_of(contents));
        return aside;
    }
}

/// The member "f8" of a step's record.
std::string f8_text(const std::vector<F8Record>& records) {
    std::string members;
    for (const F8Record& record : records) {
        members += text(
            members.empty() ? "" : ", ", json(record.tensor).dump(), ": [", record.layer, ", ",
            json_number(record.amax), ", ", json_number(record.range),
            record.lost ? text(", ", json_number(record.lost->saturated), ", ", json_number(record.lost->zeros)) : "",
            "]");
    }
    return members.empty() ? members : text(", \"f8\": {", members, "}");
}

}  // namespace

std::string json_number(double value) {
    if (!std::isfinite(value)) return "null";
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 9);
    return {digits.data(), end.ptr};
}

RunLog::RunLog(const fs::path& path, Notice notice)
    : notice_(std::move(notice)),
      file_(path, FileWriter::Mode::append),
      bytes_(static_cast<std::int64_t>(fs::file_size(path))) {}

RunLog RunLog::create(const fs::path& path, const RunHeader& header, Notice notice) {
    replace_file(path, bytes_of(line_of(header_record(header))));
    return RunLog(path, std::move(notice));
}

RunLog RunLog::resume(const fs::path& path, std::int64_t step, const RunHeader& header, Notice notice) {
    std::error_code error;
    if (!fs::exists(path, error) && !error) return create(path, header, std::move(notice));
    if (!repair_run_log(path, step, notice)) {
        replace_file(path, bytes_of(line_of(header_record(header)) + read_file(path)));
    }
    return RunLog(path, std::move(notice));
}

void RunLog::write(const StepRecord& record) {
    write_line(text("{\"step\": ", record.step, ", \"loss\": ", json_number(record.loss),
                    ", \"grad_norm\": ", json_number(record.grad_norm), ", \"lr\": ", json_number(record.lr),
                    ", \"tokens\": ", record.tokens, ", \"ms\": ", json_number(record.ms),
                    ", \"tokens_per_s\": ", json_number(record.tokens_per_s), ", \"mfu\": ", json_number(record.mfu),
                    ", \"memory_gib\": ", json_number(record.memory_gib), ", \"loss_z\": ", json_number(record.loss_z),
                    ", \"norm_z\": ", json_number(record.norm_z),
                    record.skipped.empty() ? "" : text(", \"skipped\": ", json(record.skipped).dump()),
                    f8_text(record.f8), "}\n"));
}

void RunLog::write_evaluation(const EvaluationRecord& record) {
    // A file's name may hold bytes that are not UTF-8.
    const std::string name = json(record.name).dump(-1, ' ', false, json::error_handler_t::replace);
    write_line(text("{\"step\": ", record.step, ", \"evaluation\": ", name, ", \"acc\": ", json_number(record.acc),
                    ", \"acc_norm\": ", json_number(record.acc_norm), ", \"examples\": ", record.examples, "}\n"));
}

void RunLog::write_sample(const SampleRecord& record) {
    const auto string_of = [](const std::optional<std::string>& value) {
        return value ? json(*value).dump(-1, ' ', false, json::error_handler_t::replace) : std::string("null");
    };
    write_line(text("{\"step\": ", record.step, ", \"sample\": ", string_of(record.text),
                    ", \"prompt\": ", string_of(record.prompt), ", \"tokens\": ", json(record.tokens).dump(), "}\n"));
}

void RunLog::write_validation(std::int64_t step, double val_loss) {
    write_line(text("{\"step\": ", step, ", \"val_loss\": ", json_number(val_loss), "}\n"));
}

void RunLog::write_start(std::int64_t step, const RunHeader& header) {
    write_line(line_of({{"step", step}, {"start", header_record(header)}}));
}

void RunLog::flush(bool held_back) {
    try {
        file_.write(bytes_of(held_back_));
    } catch (const Error&) {
        file_.truncate(bytes_);  // a full disk may have taken part of a line
        throw;
    }
    bytes_ += static_cast<std::int64_t>(held_back_.size());
    held_back_.clear();
    if (held_back && notice_) notice_(text(file_.path().string(), ": every line is written again"));
}

void RunLog::write_line(const std::string& line) {
    const bool held_back = !held_back_.empty();
    held_back_ += line;
    try {
        flush(held_back);
    } catch (const Error& error) {
        if (!held_back && notice_) notice_(text(error.what(), "; the log's lines are held back until it can be done"));
    }
}

void RunLog::sync() {
    if (!held_back_.empty()) flush(true);
    file_.sync();
}

void RunLog::write_anew() {
    const std::string contents = file_.contents();
    replace_file(file_.path(), bytes_of(contents));
    file_ = FileWriter(file_.path(), FileWriter::Mode::append);
    bytes_ = static_cast<std::int64_t>(contents.size());
}

bool repair_run_log(const fs::path& path, std::int64_t step, const RunLog::Notice& notice) {
    const std::string contents = read_file(path);
    std::string_view rest = contents;
    std::string kept;
    bool has_header = false;
    std::vector<std::int64_t> damaged;  // numbers of lines
    for (std::int64_t number = 1;; ++number) {
        const std::string_view line = take_line(rest);
        if (line.empty()) break;
        const json record = parse_line(line);
        const auto found = step_of(record);
        if (found) {
            if (*found <= step) kept += line;
        } else if (number == 1 && is_header(record)) {
            kept += line;
            has_header = true;
        } else {
            damaged.push_back(number);
        }
    }
    if (!damaged.empty()) {
        const fs::path aside = keep_aside(path, contents);
        if (notice) {
            notice(text(path.string(), ": line ", damaged.front(),
                        damaged.size() > 1 ? text(" and ", damaged.size() - 1, " more are not records and were dropped")
                                           : " is not a record and was dropped",
                        "; the file as it was is ", aside.string()));
        }
    }
    replace_file(path, bytes_of(kept));
    return has_header;
}

}  // namespace coda
