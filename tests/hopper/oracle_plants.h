// Mistakes planted in the results of an op, which the oracle must name: a wrong element, a wrong row, a wrong sign.
#pragma once

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kernels/cases/op_cases.h"
#include "kernels/oracle/oracle.h"
#include "kernels/oracle/tolerance.h"
#include "tests/hopper/harness.h"

namespace coda::test {

using Launcher = std::function<void(const Op&, const Memory&)>;

void launch_on_hopper(const Op& op, const Memory& memory);

/// Runs the op by cpu::run on copies of its buffers, which then return to the device.
void launch_on_host(const Op& op, const Memory& memory);

/// The operand that a report names, and the columns of it that are meant.
struct WrittenPart {
    std::string name;
    View view;
};

/// Every operand that the op writes, except scratch; dqkv of attention as its three parts.
std::vector<WrittenPart> written_parts(const Op& op);

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

/// Alters one element by a quarter more than the tolerance allows; if it allows nothing, in the last bit. Where
/// elements are pairs (Σ e, Σ e d), the middle element in all these tests is Σ e.
void plant_element(Planting& result, const Tolerance& allowed);

/// Whether the error of an operand is beyond its tolerance.
bool beyond(const Op& op, const oracle::OperandError& error);

/// Captures, launches and checks: the oracle must find nothing wrong with what `launch` writes.
struct Judged {
    oracle::Capture before;
    oracle::Report report;
};
Judged agrees(oracle::Oracle& oracle, const Memory& memory, const Op& op, const std::string& label,
              const Launcher& launch = launch_on_hopper);

/// The operands that the oracle finds wrong where `launched` ran in place of the op, or where `plant` altered the right
/// results. Changes the buffers.
std::set<std::string> named(oracle::Oracle& oracle, const Memory& memory, const Op& op, const Op& launched,
                            const std::function<void()>& plant = {});

/// The oracle must find nothing wrong with the right results, look at every operand that the op writes, and for each
/// planted mistake name its operand and no other. `follows` are operands that are judged by another operand's live
/// values.
void judges_rightly(oracle::Oracle& oracle, const Memory& memory, const Op& op, const std::string& label,
                    const Launcher& launch = launch_on_hopper, const std::set<std::string>& follows = {});

void judge(oracle::Oracle& oracle, const cases::GemmCase& made, const std::string& label);

}  // namespace coda::test
