// Mistakes planted in the results of an op, which the oracle must name: a wrong element, a wrong row, a wrong sign.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cases/op_cases.h"
#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "kernels/oracle/oracle.h"
#include "kernels/oracle/tolerance.h"
#include "tests/hopper/harness.h"

namespace coda::test {

using Launcher = std::function<void(const Op&, const Memory&)>;

inline void launch_on_hopper(const Op& op, const Memory& memory) { hopper::prepare(op, memory)(nullptr); }

/// Runs the op by cpu::run on copies of its buffers, which then return to the device.
inline void launch_on_host(const Op& op, const Memory& memory) {
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

/// The operand that a report names, and the columns of it that are meant.
struct WrittenPart {
    std::string name;
    View view;
};

/// Every operand that the op writes, except scratch; dqkv of attention as its three parts.
inline std::vector<WrittenPart> written_parts(const Op& op) {
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

/// The host copy of a written part, to be altered and put back.
class Planting {
  public:
    Planting(const View& view, const Memory& memory)
        : view_(view), device_(memory.address(view)), original_(static_cast<std::size_t>(view.span_bytes())) {
        CUDA_CHECK(cudaMemcpy(original_.data(), device_, original_.size(), cudaMemcpyDeviceToHost));
        altered_ = original_;
    }
    ~Planting() { put(original_); }
    Planting(const Planting&) = delete;
    Planting& operator=(const Planting&) = delete;

    const View& view() const { return view_; }
    double get(std::int64_t row, std::int64_t column) const {
        if (view_.dtype != DType::i32) return element(original_, view_, row, column);
        std::int32_t value = 0;
        std::memcpy(&value, original_.data() + at(row, column), sizeof value);
        return value;
    }
    void set(std::int64_t row, std::int64_t column, double value) {
        std::byte* to = altered_.data() + at(row, column);
        const auto number = static_cast<float>(value);
        const Bf16 rounded(number);
        const auto whole = static_cast<std::int32_t>(value);
        if (is_f8(view_.dtype)) with_f8(view_.dtype, [&]<class F8>(F8) { *to = std::byte{F8(number).bits}; });
        if (view_.dtype == DType::bf16) std::memcpy(to, &rounded, sizeof rounded);
        if (view_.dtype == DType::f64) std::memcpy(to, &value, sizeof value);
        if (view_.dtype == DType::f32) std::memcpy(to, &number, sizeof number);
        if (view_.dtype == DType::i32) std::memcpy(to, &whole, sizeof whole);
    }
    void flip_last_bit(std::int64_t row, std::int64_t column) { altered_[at(row, column)] ^= std::byte{1}; }

    /// Writes the altered part to the device; false where nothing changed.
    bool plant() {
        put(altered_);
        return altered_ != original_;
    }
    void restore() {
        altered_ = original_;
        put(original_);
    }
    /// Writes the altered part to the device, where it stays.
    void keep() {
        original_ = altered_;
        put(original_);
    }

  private:
    std::size_t at(std::int64_t row, std::int64_t column) const {
        return static_cast<std::size_t>((row * view_.ld + column) * size_of(view_.dtype));
    }
    void put(const std::vector<std::byte>& bytes) const {
        CUDA_CHECK(cudaMemcpy(device_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    }

    View view_;
    std::byte* device_;
    std::vector<std::byte> original_, altered_;
};

/// Sets every element to change(row, column, element).
template <class Change>
void alter(const View& view, const Memory& memory, const Change& change) {
    Planting part(view, memory);
    for (std::int64_t row = 0; row < view.rows; ++row)
        for (std::int64_t column = 0; column < view.cols; ++column)
            part.set(row, column, change(row, column, part.get(row, column)));
    part.keep();
}

/// An element in the middle that the op has written.
inline std::pair<std::int64_t, std::int64_t> middle_element(const Planting& result) {
    const View& view = result.view();
    const std::int64_t row = view.rows / 2;
    std::int64_t column = view.cols / 2;
    while (column + 1 < view.cols && std::isnan(result.get(row, column))) ++column;
    return {row, column};
}

inline double largest_of(const Planting& result) {
    double largest = 0;
    for (std::int64_t row = 0; row < result.view().rows; ++row)
        for (std::int64_t column = 0; column < result.view().cols; ++column)
            if (const double value = std::fabs(result.get(row, column)); value > largest) largest = value;
    return largest;
}

/// Alters one element by a quarter more than the tolerance allows; if it allows nothing, in the last bit. Where
/// elements are pairs (Σ e, Σ e d), the middle element in all these tests is Σ e.
inline void plant_element(Planting& result, const Tolerance& allowed) {
    const auto [row, column] = middle_element(result);
    const double off = 1.25 * allowed.largest * largest_of(result);
    if (off == 0) return result.flip_last_bit(row, column);
    const double value = result.get(row, column);
    // Away from zero and by at least a whole step of bf16, so that rounding cannot undo the mistake.
    const double step = std::fabs(value) / 64;
    result.set(row, column, value + std::copysign(result.view().dtype == DType::bf16 ? off + step : off, value));
}

/// A row written in place of the next one; in a vector, an element.
inline void plant_row(Planting& result, const Tolerance&) {
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
inline void plant_sign(Planting& result, const Tolerance&) {
    if (result.view().dtype == DType::i32) return;
    for (std::int64_t row = 0; row < result.view().rows; ++row)
        for (std::int64_t column = 0; column < result.view().cols; ++column)
            if (const double value = result.get(row, column); !std::isnan(value) && value != 0)
                result.set(row, column, -value);
}

inline const oracle::OperandError* find(const oracle::Report& report, const std::string& operand) {
    for (const auto& error : report.operands)
        if (error.operand == operand) return &error;
    return nullptr;
}

inline bool beyond(const Op& op, const oracle::OperandError& error) {
    const Tolerance allowed = oracle::tolerance(op, error.operand);
    return !(error.rms <= allowed.rms && error.largest <= allowed.largest);
}

/// Captures, launches and checks: the oracle must find nothing wrong with what `launch` writes.
struct Judged {
    oracle::Capture before;
    oracle::Report report;
};
inline Judged agrees(oracle::Oracle& oracle, const Memory& memory, const Op& op, const std::string& label,
                     const Launcher& launch = launch_on_hopper) {
    const oracle::Capture before = oracle.capture(op, memory);
    launch(op, memory);
    const oracle::Report report = oracle.check(op, memory, before);
    INFO(oracle::line_of(label, op, report));
    CHECK(oracle::within_tolerance(op, report));
    return {before, report};
}

/// The operands that the oracle finds wrong where `launched` ran in place of the op, or where `plant` altered the right
/// results. Changes the buffers.
inline std::set<std::string> named(oracle::Oracle& oracle, const Memory& memory, const Op& op, const Op& launched,
                                   const std::function<void()>& plant = {}) {
    const oracle::Capture before = oracle.capture(op, memory);
    launch_on_hopper(launched, memory);
    if (plant) plant();
    std::set<std::string> operands;
    for (const oracle::OperandError& error : oracle.check(op, memory, before).operands)
        if (beyond(op, error)) operands.insert(error.operand);
    return operands;
}

/// The oracle must find nothing wrong with the right results, look at every operand that the op writes, and for each
/// planted mistake name its operand and no other. `follows` are operands that are judged by another operand's live
/// values.
inline void judges_rightly(oracle::Oracle& oracle, const Memory& memory, const Op& op, const std::string& label,
                           const Launcher& launch = launch_on_hopper, const std::set<std::string>& follows = {}) {
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

inline void judge(oracle::Oracle& oracle, const cases::GemmCase& made, const std::string& label) {
    const cases::DeviceBuffers device(made.buffers, 23);
    judges_rightly(oracle, device.memory(), made.op, label);
}

}  // namespace coda::test
