#include <numeric>

#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

/// Eight sequences of llama1b, or three of a small model of which one is idle.
struct CacheSizes {
    std::int64_t sequences, context, heads, kv_heads, head_dim;
    std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
    std::int64_t cache_rows() const { return sequences * kv_heads * context; }
};
CacheSizes sizes_of(Size size) {
    return size == Size::step ? CacheSizes{8, 8192, 32, 8, 64} : CacheSizes{3, 600, 4, 2, 64};
}

template <class T>
void describe(T& op, const CacheSizes& sizes) {
    op.context = sizes.context;
    op.heads = sizes.heads;
    op.kv_heads = sizes.kv_heads;
    op.head_dim = sizes.head_dim;
}

OpCase store(Size size) {
    const CacheSizes sizes = sizes_of(size);
    const std::int64_t rows = size == Size::step ? 4096 : 130;
    OpCase made;
    StoreKeyValue op;
    describe(op, sizes);
    op.place = made.add("place", DType::i32, 1, 3, Fill::positions);
    made.tokens = {1, 7, static_cast<std::int32_t>(rows - 5)};
    op.qkv = made.add("qkv", DType::bf16, rows, sizes.columns(), Fill::normal);
    op.keys = made.add("keys", DType::bf16, sizes.cache_rows(), sizes.head_dim, Fill::normal, 1, Access::inout);
    op.values = made.add("values", DType::bf16, sizes.cache_rows(), sizes.head_dim, Fill::normal, 1, Access::inout);
    return made.finish(op, text("M ", rows, " Hk ", sizes.kv_heads, " hd ", sizes.head_dim));
}

/// Every row has its own sequence, or all rows share one.
template <std::int64_t kWindow, bool kOneSequence = false>
OpCase attend(Size size) {
    CacheSizes sizes = sizes_of(size);
    const std::int64_t rows = sizes.sequences;
    OpCase made;
    DecodeAttention op;
    op.window = kWindow;
    op.lengths = made.add("lengths", DType::i32, 1, rows, Fill::positions);
    made.tokens.assign(static_cast<std::size_t>(rows), static_cast<std::int32_t>(sizes.context));
    if (size == Size::test) made.tokens = {257, 0, 600};
    if (kOneSequence) {
        sizes.sequences = 1;
        std::iota(made.tokens.begin(), made.tokens.end(), static_cast<std::int32_t>(257 - rows + 1));
        op.rows_each = rows;
    }
    describe(op, sizes);
    op.qkv = made.add("qkv", DType::bf16, rows, sizes.columns(), Fill::normal);
    op.keys = made.add("keys", DType::bf16, sizes.cache_rows(), sizes.head_dim, Fill::normal, 1, Access::inout);
    op.values = made.add("values", DType::bf16, sizes.cache_rows(), sizes.head_dim, Fill::normal, 1, Access::inout);
    op.o = made.result("o", DType::bf16, rows, sizes.heads * sizes.head_dim);
    op.scratch = made.scratch(op.scratch_bytes());
    return made.finish(
        op, text("S ", sizes.sequences, " C ", sizes.context, " H ", sizes.heads, "/", sizes.kv_heads, " hd ",
                 sizes.head_dim, kWindow > 0 ? " window" : "", kOneSequence ? text(" rows ", rows) : ""));
}

}  // namespace

template <>
OpCases cases_of<StoreKeyValue>() {
    return {.programs = {}, .others = {{store}}};
}
template <>
OpCases cases_of<DecodeAttention>() {
    return {.programs = {}, .others = {{attend<0>}, {attend<300>, false}, {attend<256, true>, false}}};
}

}  // namespace coda::cases
