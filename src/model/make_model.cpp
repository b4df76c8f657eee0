#include "src/model/model.h"

namespace coda {

View embedding_rows(const ParameterLayout& layout, const Weights& weights, const View& master, bool has_master,
                    const View& instead) {
    if (!layout.tied()) return weights.projection(layout.embedding.table).value();
    return has_master ? Segments::part(master, layout.embedding_table()) : instead;
}

Model make_model(const ParameterLayout& layout, const ModelShape& shape, const ScheduleOptions& options,
                 const BatchInputs& batch, const Weights& weights, const View& rows, const BlockBuffers& buffers) {
    std::vector<Layer> layers;
    EmbeddingBlock embedding(layout.embedding, weights, rows, shape, buffers);
    for (std::size_t l = 0; l < layout.layers.size(); ++l)
        layers.emplace_back(layout.layers[l], weights, shape, options.recompute, buffers.of_layer(l));
    return {.batch = batch,
            .embedding = std::move(embedding),
            .layers = std::move(layers),
            .head = {layout.head, weights, shape, options.lm_head_chunks, buffers},
            .dx = buffers.activation("dx", shape.tokens, shape.width),
            .tied = layout.tied()};
}

void Model::keep_rows(std::int64_t rows) {
    batch.tokens = narrowed(batch.tokens, rows);
    batch.positions = narrowed(batch.positions, rows);
    if (batch.doc_start) batch.doc_start = narrowed(batch.doc_start, rows);
    embedding.keep_rows(rows);
    for (Layer& layer : layers) layer.keep_rows(rows);
}

}  // namespace coda
