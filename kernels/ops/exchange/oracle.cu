// StartExchange and FinishExchange: the oracle sees the memory of one rank, and cannot tell what another one sent.
#include "kernels/ops/exchange/op.h"
#include "kernels/oracle/op_check.h"

namespace coda::oracle {

template <>
void check_op(const StartExchange& op, OpCheck&) {
    throw Error(text("oracle: ", op.name, " moves bytes between ranks, and the oracle checks a single one"));
}

template <>
void check_op(const FinishExchange& op, OpCheck&) {
    throw Error(text("oracle: ", op.name, " moves bytes between ranks, and the oracle checks a single one"));
}

}  // namespace coda::oracle
