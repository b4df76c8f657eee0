// The attention ops, prepared for a Hopper GPU. Head dimensions 64 and 128, bf16 storage, rows aligned to 16 bytes.
// doc_start, where given, must not decrease within a sequence (documents lie one after the other). Host.
#pragma once

#include "kernels/hopper/run.h"

namespace coda::hopper {

Launch prepare_op(const Attention& op, const Memory& memory);
Launch prepare_op(const AttentionBackward& op, const Memory& memory);

}  // namespace coda::hopper
