// The tensors of a Hugging Face folder's files, and which tensors of the parameter layout each consists of. The layout
// has LLaMA's names; a family whose files are another way has a table here.
//
//   llama, mistral, qwen2, qwen3   as the layout
//   gpt2    wte, wpe, h.N.ln_1, h.N.attn.c_attn (the rows of q, k and v), h.N.attn.c_proj, h.N.ln_2, h.N.mlp.c_fc,
//           h.N.mlp.c_proj, ln_f, all behind "transformer."; lm_head.weight. The four matrices of a layer are
//           transposed, (in, out), as transformers' Conv1D has them
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/model/parameters.h"

namespace coda {

/// A tensor of the files: the rows of one tensor of the layout, or of several, one after the other.
struct FileTensor {
    std::string name;
    bool matrix = true;       // else a 1-D tensor of rows * cols elements
    bool transposed = false;  // a matrix of which the file has (cols, rows)
    std::int64_t rows = 0, cols = 0;
    std::vector<std::size_t> parts{};  // numbers in ParameterLayout::tensors

    std::vector<std::int64_t> shape() const;
};

/// Where a tensor of the layout lies.
struct FilePlace {
    std::size_t tensor = 0;  // number of the files' tensor
    std::int64_t first = 0;  // the row of it where this one begins
};

struct FileTensors {
    std::vector<FileTensor> tensors;       // in the order of the layout
    std::vector<FilePlace> places;         // of the layout's tensors
    std::string_view prefix;               // of names, which the files of a model without its head lack; may be empty
    std::span<const char* const> buffers;  // ends of names of tensors that are no weights
};
FileTensors file_tensors(const ModelConfig& model, const ParameterLayout& layout);

}  // namespace coda
