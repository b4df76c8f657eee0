#include "src/model/own_copies.h"

namespace coda {

std::vector<FlatSegments::Copy> own_copies(const ParameterLayout& layout, const Float8State& float8, const View& master,
                                           const BlockBuffers& buffers) {
    std::vector<FlatSegments::Copy> copies;
    const auto add = [&](const BlockBuffers& to, const char* name, const PackedTensor& tensor, bool f8) {
        FlatSegments::Copy copy;
        copy.kept = !f8;
        copy.value = f8 ? to.activation(name, tensor.rows, tensor.cols)
                        : to.persistent(name, MemorySegment::weights, to.precision().storage, tensor.rows, tensor.cols);
        copy.master = FlatSegments::view_of(master, tensor);
        const auto fold = std::find_if(layout.folds.begin(), layout.folds.end(),
                                       [&](const NormFold& each) { return each.first == tensor.offset; });
        if (fold != layout.folds.end())
            copy.gamma = FlatSegments::view_of(master, {.offset = fold->gamma, .rows = 1, .cols = tensor.cols});
        copies.push_back(copy);
    };
    add(buffers, "embedding working weights", layout.embedding.table, false);
    for (std::size_t l = 0; l < layout.layers.size(); ++l) {
        const Layer::Parameters& layer = layout.layers[l];
        const Float8Layer f8 = float8.layer(l);
        const BlockBuffers to = buffers.of_layer(l);
        add(to, "qkv working weights", layer.attention.qkv, static_cast<bool>(f8.qkv));
        add(to, "attn_out working weights", layer.attention.out, static_cast<bool>(f8.attn_out));
        add(to, "gate_up working weights", layer.mlp.gate_up, static_cast<bool>(f8.gate_up));
        add(to, "down working weights", layer.mlp.down, static_cast<bool>(f8.down));
    }
    if (!layout.tied()) add(buffers, "head working weights", layout.head.matrix, false);
    return copies;
}

}  // namespace coda
