#include "src/model/model.h"

namespace coda {

View embedding_rows(const ParameterLayout& layout, const FlatSegments& segments, bool has_master, const View& instead) {
    if (!layout.tied()) return segments.matrix(layout.embedding.table).value;
    return has_master ? FlatSegments::view_of(segments.master, layout.embedding.table) : instead;
}

Model make_model(const ParameterLayout& layout, const ModelShape& shape, const ScheduleOptions& options,
                 const BatchInputs& batch, const FlatSegments& segments, const View& rows, const Float8State& float8,
                 const BlockBuffers& buffers) {
    std::vector<Layer> layers;
    EmbeddingBlock embedding(layout.embedding, segments, rows, shape, buffers);
    for (std::size_t l = 0; l < layout.layers.size(); ++l) {
        layers.emplace_back(layout.layers[l], segments, shape, options.recompute, float8.layer(l), buffers.of_layer(l));
    }
    return {.batch = batch,
            .embedding = std::move(embedding),
            .layers = std::move(layers),
            .head = {layout.head, segments, shape, options.lm_head_chunks, buffers},
            .backward = {shape, options.recompute, static_cast<bool>(float8), buffers},
            .dx = buffers.activation("dx", shape.tokens, shape.width),
            .tied = layout.tied()};
}

}  // namespace coda
