#include "tests/hopper/oracle_plants.h"

#include <cmath>
#include <utility>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"

namespace coda::test {
namespace {

/// An element in the middle that the op has written.
std::pair<std::int64_t, std::int64_t> middle_element(const Planting& result) {
    const View& view = result.view();
    const std::int64_t row = view.rows / 2;
    std::int64_t column = view.cols / 2;
    while (column + 1 < view.cols && std::isnan(result.get(row, column))) ++column;
    return {row, column};
}

double largest_of(const Planting& result) {
    double largest = 0;
    for (std::int64_t row = 0; row < result.view().rows; ++row)
        for (std::int64_t column = 0; column < result.view().cols; ++column)
            if (const double value = std::fabs(result.get(row, column)); value > largest) largest = value;
    return largest;
}

/// A row written in place of the next one; in a vector, an element.
void plant_row(Planting& result, const Tolerance&) {
    const View& view = result.view();
    if (view.rows == 1) {
        for (std::int64_t i = view.cols / 3; i + 1 < view.cols && i < view.cols / 3 + 64; ++i)
            if (!std::isnan(result.get(0, i)) && !std::isnan(result.get(0, i + 1)))
                result.set(0, i + 1, result.get(0, i));
        return;
    }
    const std::int64_t row = view.rows / 2 - 1;
    for (std::int64_t column = 0; column < view.cols; ++column)
        if (!std::isnan(result.get(row + 1, column))) result.set(row + 1, column, result.get(row, column));
}

/// Only for numbers; a flag has no sign.
void plant_sign(Planting& result, const Tolerance&) {
    if (result.view().dtype == DType::i32) return;
    for (std::int64_t row = 0; row < result.view().rows; ++row)
        for (std::int64_t column = 0; column < result.view().cols; ++column)
            if (const double value = result.get(row, column); !std::isnan(value) && value != 0)
                result.set(row, column, -value);
}

const oracle::OperandError* find(const oracle::Report& report, const std::string& operand) {
    for (const auto& error : report.operands)
        if (error.operand == operand) return &error;
    return nullptr;
}

}  // namespace

void launch_on_hopper(const Op& op, const Memory& memory) { hopper::prepare(op, memory)(nullptr); }

void launch_on_host(const Op& op, const Memory& memory) {
    Bytes host;
    std::vector<std::byte*> device;
    for_each_operand(op, [&](const char*, const View& view, Access) {
        const auto id = static_cast<std::size_t>(view.buffer);
        if (id >= host.size()) host.resize(id + 1), device.resize(id + 1);
        const auto bytes = static_cast<std::size_t>(view.offset + view.span_bytes());
        if (bytes > host[id].size()) host[id].resize(bytes);
        device[id] = memory.address(view) - view.offset;
    });
    for (std::size_t i = 0; i < host.size(); ++i)
        if (!host[i].empty()) CUDA_CHECK(cudaMemcpy(host[i].data(), device[i], host[i].size(), cudaMemcpyDeviceToHost));
    cpu::run(op, memory_of(host));
    for (std::size_t i = 0; i < host.size(); ++i)
        if (!host[i].empty()) CUDA_CHECK(cudaMemcpy(device[i], host[i].data(), host[i].size(), cudaMemcpyHostToDevice));
}

std::vector<WrittenPart> written_parts(const Op& op) {
    std::vector<WrittenPart> parts;
    for_each_operand(op, [&](const char* name, const View& view, Access access) {
        if (access != Access::in && std::string(name) != "scratch") parts.push_back({name, view});
    });
    const auto split = [&](std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
        const View whole = parts[0].view;
        parts.erase(parts.begin());
        std::int64_t first = 0;
        for (const auto& [name, number] : {std::pair{"dq", heads}, {"dk", kv_heads}, {"dv", kv_heads}}) {
            View part = whole;
            part.offset += first * size_of(whole.dtype);
            part.cols = number * head_dim;
            first += part.cols;
            parts.push_back({name, part});
        }
    };
    if (const auto* backward = std::get_if<AttentionBackward>(&op))
        split(backward->heads, backward->kv_heads, backward->head_dim);
    return parts;
}

void plant_element(Planting& result, const Tolerance& allowed) {
    const auto [row, column] = middle_element(result);
    const double off = 1.25 * allowed.largest * largest_of(result);
    if (off == 0) return result.flip_last_bit(row, column);
    const double value = result.get(row, column);
    // Away from zero and by at least a whole step of a narrow format, so that rounding cannot undo the mistake.
    const DType format = result.view().dtype;
    const double step = format == DType::bf16     ? 1. / 64
                        : format == DType::f8e4m3 ? 1. / 8
                        : format == DType::f8e5m2 ? 1. / 4
                                                  : 0;
    result.set(row, column, value + std::copysign(off + step * std::fabs(value), value));
}

bool beyond(const Op& op, const oracle::OperandError& error) {
    const Tolerance allowed = oracle::tolerance(op, error.operand);
    return !(error.rms <= allowed.rms && error.largest <= allowed.largest);
}

Judged agrees(oracle::Oracle& oracle, const Memory& memory, const Op& op, const std::string& label,
              const Launcher& launch) {
    const oracle::Capture before = oracle.capture(op, memory);
    launch(op, memory);
    const oracle::Report report = oracle.check(op, memory, before);
    INFO(oracle::line_of(label, op, report));
    CHECK(oracle::within_tolerance(op, report));
    return {before, report};
}

std::set<std::string> named(oracle::Oracle& oracle, const Memory& memory, const Op& op, const Op& launched,
                            const std::function<void()>& plant) {
    const oracle::Capture before = oracle.capture(op, memory);
    launch_on_hopper(launched, memory);
    if (plant) plant();
    std::set<std::string> operands;
    for (const oracle::OperandError& error : oracle.check(op, memory, before).operands)
        if (beyond(op, error)) operands.insert(error.operand);
    return operands;
}

void judges_rightly(oracle::Oracle& oracle, const Memory& memory, const Op& op, const std::string& label,
                    const Launcher& launch, const std::set<std::string>& follows) {
    const auto [before, report] = agrees(oracle, memory, op, label, launch);
    using Plant = void (*)(Planting&, const Tolerance&);
    const std::pair<const char*, Plant> plants[] = {
        {"element", plant_element}, {"row", plant_row}, {"sign", plant_sign}};
    for (const WrittenPart& part : written_parts(op)) {
        INFO("operand " << part.name);
        CHECK(find(report, part.name) != nullptr);
        Planting result(part.view, memory);
        for (const auto& [mistake, plant] : plants) {
            plant(result, oracle::tolerance(op, part.name));
            if (!result.plant()) continue;
            const oracle::Report found = oracle.check(op, memory, before);
            result.restore();
            INFO("a wrong " << mistake << ": " << oracle::line_of(label, op, found));
            CHECK(!oracle::within_tolerance(op, found));
            for (const oracle::OperandError& error : found.operands)
                if (follows.count(error.operand) == 0) CHECK(beyond(op, error) == (error.operand == part.name));
        }
    }
}

void judge(oracle::Oracle& oracle, const cases::GemmCase& made, const std::string& label) {
    const cases::DeviceBuffers device(made.buffers, 23);
    judges_rightly(oracle, device.memory(), made.op, label);
}

}  // namespace coda::test
