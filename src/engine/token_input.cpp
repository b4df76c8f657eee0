#include "src/engine/token_input.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace coda {

TokenInput::TokenInput(Executor& executor, const Schedules& schedules)
    : executor_(executor), ids_(schedules.host.tokens) {
    if (!schedules.uses(schedules.host.embedded)) return;
    embedded_ = schedules.host.embedded;
    row_bytes_ = static_cast<std::size_t>(embedded_.cols * size_of(embedded_.dtype));
    // The device looks row m of the micro-batch up in row m.
    std::vector<std::int32_t> in_order(static_cast<std::size_t>(ids_.cols));
    std::iota(in_order.begin(), in_order.end(), 0);
    executor_.upload(ids_, in_order.data());
}

void TokenInput::set_rows(const ParameterLayout& layout, const MasterWeights& weights) {
    if (!embedded_) return;
    const PackedTensor& table = layout.embedding_table();
    table_.resize(static_cast<std::size_t>(table.count() * size_of(embedded_.dtype)));
    std::vector<float> part;
    const auto fill = [&]<class Storage>(Storage) {
        for (std::int64_t first = 0; first < table.count(); first += kWeightsPart) {
            part.resize(static_cast<std::size_t>(std::min(kWeightsPart, table.count() - first)));
            weights.read(table.offset + first, part);
            std::transform(part.begin(), part.end(), reinterpret_cast<Storage*>(table_.data()) + first,
                           [](float value) { return Storage(value); });
        }
    };
    if (embedded_.dtype == DType::bf16) return fill(Bf16());
    fill(float());
}

void TokenInput::upload(std::span<const std::int32_t> tokens) {
    if (!embedded_) return executor_.upload(ids_, tokens.data());
    require(!table_.empty(), "tokens were uploaded before the weights that embed them");
    rows_.resize(tokens.size() * row_bytes_);
#pragma omp parallel for
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        std::memcpy(rows_.data() + i * row_bytes_, table_.data() + static_cast<std::size_t>(tokens[i]) * row_bytes_,
                    row_bytes_);
    }
    executor_.upload(embedded_, rows_.data());
}

}  // namespace coda
