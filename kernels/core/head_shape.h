// The heads of grouped-query attention, checked against each other: for every interpreter. Host.
#pragma once

#include <cstdint>

#include "kernels/core/error.h"

namespace coda {

/// H, Hk, hd of an op and the places of its heads in a row of qkv: [q heads | k heads | v heads].
struct HeadShape {
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

    std::int64_t group() const { return heads / kv_heads; }  // query heads of one key/value head
    std::int64_t head_slots() const { return heads + 2 * kv_heads; }
    std::int64_t columns() const { return head_slots() * head_dim; }
    std::int64_t key_slot(std::int64_t kv_head) const { return heads + kv_head; }
    std::int64_t value_slot(std::int64_t kv_head) const { return heads + kv_heads + kv_head; }
    /// Column of qkv where a head's key or value begins.
    std::int64_t key_column(std::int64_t kv_head) const { return key_slot(kv_head) * head_dim; }
    std::int64_t value_column(std::int64_t kv_head) const { return value_slot(kv_head) * head_dim; }
};

/// Throws Error where the op's constants contradict each other. `length`: of a sequence, an attribute called `name`.
template <class Op>
HeadShape head_shape(const Op& op, const char* name, std::int64_t length) {
    require(length >= 1 && op.heads >= 1 && op.kv_heads >= 1 && op.head_dim >= 1, Op::name, ": ", name, " ", length,
            ", heads ", op.heads, ", kv_heads ", op.kv_heads, ", head_dim ", op.head_dim, " must all be positive");
    require(op.heads % op.kv_heads == 0, Op::name, ": ", op.heads, " query heads are not a multiple of ", op.kv_heads,
            " key/value heads");
    return {op.heads, op.kv_heads, op.head_dim};
}

}  // namespace coda
