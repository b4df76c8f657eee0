#include "kernels/oracle/tolerance.h"

#include <cstdio>
#include <string_view>

#include "kernels/core/error.h"

namespace coda::oracle {

namespace {

/// An fp32 value that is stored once in bf16. Rounding moves an element by half a step, at most 2^-8 = 3.9e-3 of itself
/// at the bottom of a binade. The RMS is between 1.1e-3 (all elements at the top) and 2.3e-3. The rest is room for fp32
/// arithmetic in another order.
constexpr Tolerance kStorage{4e-3, 5e-3};

/// fp32 sums of terms that are not rounded.
/// kSum: up to some hundred terms in another order differ by 2^-24 sqrt(terms) relative to terms of mixed sign, and by
/// 2^-24 terms at most: 1e-5.
/// kTruncation: tensor cores cut every product at the last bit of the accumulator to which it is added, towards zero.
/// That loses 2^-24 of the sum on average, and K times that where all products have one sign. Accumulators of another
/// order, as cuBLAS's may be, lose about half of that more or less: 1.3e-3 was seen in the gradient of an LM head whose
/// 128256 columns were summed from the first. Where products cancel, that is a share of the sums on the way, not of the
/// result: column_sum.h has their size, against which LinearRmsBackward's dgamma is measured.
/// kSpread, for single elements: errors are as unevenly spread as the values are.
constexpr double kSum = 1e-5, kTruncation = 0x1p-25, kSpread = 4;

/// The view of a written operand. For a part that OperandError names, the view of the whole operand.
template <class T>
View written_operand(const T& op, const std::string& operand) {
    View found;
    std::string_view wanted = operand;
    if constexpr (T::traits.has(Trait::part_of)) wanted = T::part_of(wanted);
    for_each_operand(op, [&](const std::string& field, const View& view, Access access) {
        if (access != Access::in && field != "scratch" && field == wanted) found = view;
    });
    require(static_cast<bool>(found), "oracle: ", T::name, " writes no operand ", operand);
    return found;
}

/// Terms per sum of the op's GEMM; 0 without one.
template <class T>
std::int64_t contraction(const T& op) {
    if constexpr (T::traits.has(Trait::contraction)) {
        return op.contraction();
    } else if constexpr (T::traits.has(Trait::w)) {
        return op.a.cols;
    } else {
        return 0;
    }
}

/// The tolerance that follows only from the operand's type.
template <class T>
Tolerance by_type(const T& op, const View& view) {
    if (view.dtype == DType::i32) return kExact;
    if (view.dtype == DType::bf16) return kStorage;
    const double sum = kSum + kTruncation * static_cast<double>(contraction(op));
    return {sum, kSpread * sum};
}

bool within(const OperandError& error, const Tolerance& allowed) {
    return error.rms <= allowed.rms && error.largest <= allowed.largest;
}

std::string scientific(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.1e", value);
    return digits;
}

}  // namespace

Tolerance tolerance(const Op& op, const std::string& operand) {
    return std::visit(
        [&]<class T>(const T& concrete) {
            const View view = written_operand(concrete, operand);
            if constexpr (T::traits.has(Trait::tolerance))
                if (const auto own = concrete.tolerance(operand, view.dtype)) return *own;
            return by_type(concrete, view);
        },
        op);
}

bool within_tolerance(const Op& op, const Report& report) {
    for (const OperandError& error : report.operands)
        if (!within(error, tolerance(op, error.operand))) return false;
    return !report.operands.empty();
}

std::string line_of(const std::string& label, const Op& op, const Report& report) {
    std::string line = text(label, " ", name_of(op)), beyond;
    for (std::size_t i = 0; i < report.operands.size(); ++i) {
        const OperandError& error = report.operands[i];
        const Tolerance allowed = tolerance(op, error.operand);
        line += text("  ", error.operand, " ", scientific(error.rms));
        const bool last = i + 1 == report.operands.size();
        if (last || tolerance(op, report.operands[i + 1].operand).rms != allowed.rms)
            line += text("  (tolerance ", scientific(allowed.rms), ")");
        if (!within(error, allowed))
            beyond += text(beyond.empty() ? "" : ",", " ", error.operand, " (largest ", scientific(error.largest),
                           " of ", scientific(allowed.largest), ")");
    }
    if (report.operands.empty()) return line + "  BEYOND: nothing was compared";
    return line + (beyond.empty() ? "  ok" : "  BEYOND:" + beyond);
}

}  // namespace coda::oracle
