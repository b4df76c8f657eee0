// How tokens reach the embedding: as ids, or, where a plan without master weights has a tied embedding, as its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/executor.h"
#include "src/model/master_weights.h"

namespace coda {

class TokenInput {
  public:
    TokenInput(Executor& executor, const Schedules& schedules);

    /// Takes the embedding of the weights. Ids need none.
    void set_rows(const ParameterLayout& layout, const MasterWeights& weights);

    /// The tokens of a micro-batch.
    void upload(std::span<const std::int32_t> tokens);

  private:
    Executor& executor_;
    View ids_, embedded_;           // of the micro-batch; embedded_ absent where ids are uploaded
    std::vector<std::byte> table_;  // (Vp, d) storage, row_bytes_ each
    std::vector<std::byte> rows_;   // of the latest upload
    std::size_t row_bytes_ = 0;
};

}  // namespace coda
