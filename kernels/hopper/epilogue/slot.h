// Epilogue slots: the unit in which output tiles pass through shared memory. Host and device.
//
// A consumer warpgroup visits its accumulators in sub-tiles of 64 rows and kColumns columns. A slot is the shared
// memory of one sub-tile: one panel per tile operand (loaded, stored, or both in place). The slots of a warpgroup form
// a ring; a warp of the producer warpgroup, the mover, loads into them and stores from them.
#pragma once

#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/swizzle.h"
#include "kernels/hopper/sm90/warp_roles.h"

namespace coda::hopper {

/// One tile operand of an epilogue. `row_bytes` (32, 64 or 128) is what a sub-tile takes of one row of it, and
/// numerator / denominator its columns per accumulator column: 1, 2 for pairs twice as wide, 1/2 for gated halves.
struct Panel {
    int row_bytes = 0;
    int numerator = 1, denominator = 1;

    CODA_HD constexpr int bytes() const { return kPanelRows * row_bytes; }
    CODA_HD constexpr int column(int accumulator_column) const { return accumulator_column * numerator / denominator; }
};

/// A tile operand that is a transposed FP8 copy (ColumnOrder::paired): the panel has a row for each of row_bytes
/// columns of a byte, with the 64 rows of the sub-tile in it.
struct TransposedPanel {
    int row_bytes = 0;
    int numerator = 1, denominator = 1;

    CODA_HD constexpr operator Panel() const { return {row_bytes, numerator, denominator}; }
};

/// A tile operand, a Panel or TransposedPanel, in the bytes of another one, which has been read by then: panel `of` of
/// the slot, before it. Several lie there in order. The program has a barrier of the warpgroup between the last read
/// and the first store.
template <class AnyPanel>
struct Over {
    AnyPanel panel;
    int of;

    CODA_HD constexpr operator Panel() const { return panel; }
};
template <class AnyPanel>
Over(AnyPanel, int) -> Over<AnyPanel>;

CODA_HD constexpr bool is_transposed(const Panel&) { return false; }
CODA_HD constexpr bool is_transposed(const TransposedPanel&) { return true; }
template <class AnyPanel>
CODA_HD constexpr bool is_transposed(const Over<AnyPanel>& over) {
    return is_transposed(over.panel);
}

/// The panel in whose bytes another one lies; -1: it has bytes of its own.
template <class AnyPanel>
CODA_HD constexpr int over_of(const AnyPanel&) {
    return -1;
}
template <class AnyPanel>
CODA_HD constexpr int over_of(const Over<AnyPanel>& over) {
    return over.of;
}

/// Panels are packed in order, largest first, so that each starts at a multiple of its swizzle period.
template <int kColumns_, auto... panels>
struct Slot {
    static constexpr int kColumns = kColumns_;
    static constexpr int kPanels = sizeof...(panels);
    static constexpr int kBytes = ((over_of(panels) < 0 ? Panel(panels).bytes() : 0) + ...);
    static constexpr bool kTransposes = (is_transposed(panels) || ...);
    static constexpr bool kShares = ((over_of(panels) >= 0) || ...);

    static CODA_HD constexpr Panel panel(int index) {
        const Panel list[] = {panels...};
        return list[index];
    }
    static CODA_HD constexpr bool transposed(int index) {
        const bool list[] = {is_transposed(panels)...};
        return list[index];
    }
    static CODA_HD constexpr int over(int index) {
        const int list[] = {over_of(panels)...};
        return list[index];
    }
    /// Bytes before a panel.
    static CODA_HD constexpr int offset(int index) {
        int bytes = 0;
        // NOTE: both branches are equal where no panel shares bytes. With only the first, bf16 kernels have another
        // order of instructions.
        if constexpr (kShares) {
            const int of = over(index);
            for (int i = 0; i < index; ++i)
                if (over(i) == of || (over(i) < 0 && i < of)) bytes += panel(i).bytes();
        } else {
            for (int i = 0; i < index; ++i) bytes += panel(i).bytes();
        }
        return bytes;
    }
    /// Whether some panel takes 8 bytes per pair. Two neighbouring rows of 128 bytes would then meet in the same banks,
    /// so odd rows visit the 8-column blocks of a sub-tile in another order: block b ^ kOddRowBlock in place of b. A
    /// slot with a transposed panel is not swapped: its instructions take the same block of all rows.
    static constexpr bool kOddRowsSwapped = !kTransposes && ((Panel(panels).row_bytes == 4 * kColumns) || ...);
    static constexpr int kOddRowBlock = kOddRowsSwapped ? 2 : 0;
    static_assert(!kOddRowsSwapped || kColumns == 32, "panels with 8 bytes per pair have rows of 128 bytes");

    static constexpr bool aligned() {
        for (int i = 0; i < kPanels; ++i)
            if (offset(i) % (8 * panel(i).row_bytes) != 0) return false;
        return kBytes % kSwizzleAtomBytes == 0;
    }
    static constexpr bool fitting() {
        for (int i = 0; i < kPanels; ++i) {
            const int of = over(i);
            if (of < 0) continue;
            if (of >= i || over(of) >= 0) return false;
            if (offset(i) + panel(i).bytes() > offset(of) + panel(of).bytes()) return false;
        }
        return true;
    }
    static_assert(fitting(), "panels over another one come after it and fit its bytes");
    static_assert(aligned(), "order panels from the widest to the narrowest and fill a multiple of 1024 bytes");
    static_assert(kColumns % 16 == 0, "a sub-tile is made of 16-column blocks (one stmatrix)");
};

}  // namespace coda::hopper
