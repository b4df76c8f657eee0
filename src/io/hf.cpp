#include "src/io/hf.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "kernels/core/error.h"
#include "src/config/json_file.h"
#include "src/config/quantization.h"
#include "src/io/export_files.h"
#include "src/io/files.h"

namespace coda {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// Names that share a fault; the first ten are spelled out.
class Fault {
  public:
    explicit Fault(const char* what) : what_(what) {}
    void add(const std::string& name) {
        if (++number_ <= kNamed) names_ += (number_ == 1 ? "" : ", ") + name;
    }
    std::string message() const {
        if (number_ == 0) return "";
        return text("\n  ", number_, " ", what_, ": ", names_,
                    number_ > kNamed ? text(" and ", number_ - kNamed, " more") : "");
    }

  private:
    static constexpr std::int64_t kNamed = 10;
    const char* what_;
    std::int64_t number_ = 0;
    std::string names_;
};

std::vector<std::int64_t> shape_of(const HfTensor& tensor) {
    return tensor.matrix ? std::vector{tensor.rows, tensor.cols} : std::vector{tensor.count()};
}

bool same_values(const StoredTensor& a, const StoredTensor& b) {
    if (a.shape != b.shape) return false;
    constexpr std::int64_t kPart = 1 << 16;
    std::vector<double> left(kPart), right(kPart);
    for (std::int64_t first = 0; first < a.count; first += kPart) {
        const auto number = static_cast<std::size_t>(std::min(kPart, a.count - first));
        a.read(first, std::span(left).first(number));
        b.read(first, std::span(right).first(number));
        if (!std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(number), right.begin())) return false;
    }
    return true;
}

/// Whether the checkpoint may have a tensor that the model does not have.
bool is_ignored(const StoredTensor& tensor, const SafetensorsFolder& checkpoint, const ParameterLayout& layout) {
    if (tensor.name.ends_with("rotary_emb.inv_freq")) return true;
    if (tensor.name != kHead || !layout.tied()) return false;
    const auto embedding = checkpoint.tensors().find(kEmbedding);
    if (embedding == checkpoint.tensors().end()) return false;
    require(same_values(tensor, embedding->second), tensor.file, ": ", kHead, " differs from ", kEmbedding,
            ", but the model ties them; set model.tie_word_embeddings to false");
    return true;
}

/// Whether a tensor of this name is a part of a quantized matrix.
bool is_quantized(const std::string& name) {
    const auto ends = [&](const char* end) { return name.ends_with(end); };
    return ends(".qweight") || ends(".qzeros") || ends(".weight_scale") || ends(".weight_scale_inv") ||
           ends(".weight_packed") || ends(".absmax") || ends(".SCB");
}

/// Throws unless the checkpoint has exactly the model's tensors. int4: of the layout's, those that it has quantized.
void check_tensors(const fs::path& folder, const SafetensorsFolder& checkpoint, const ParameterLayout& layout,
                   std::span<const std::optional<Int4Matrix>> int4) {
    Fault missing("missing"), unexpected("unexpected"), misshapen("of another shape than the model's");
    std::set<std::string> expected, floats;
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        if (int4[t]) {
            expected.insert(int4[t]->parts().begin(), int4[t]->parts().end());
            continue;
        }
        expected.insert(tensor.name);
        floats.insert(tensor.name);
        const auto found = checkpoint.tensors().find(tensor.name);
        if (found == checkpoint.tensors().end()) {
            missing.add(tensor.name);
        } else if (found->second.shape != shape_of(tensor)) {
            misshapen.add(
                text(tensor.name, " ", shape_text(found->second.shape), " for ", shape_text(shape_of(tensor))));
        }
    }
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        if (expected.contains(name)) continue;
        require(!is_quantized(name), tensor.file, ": ", name,
                ": the weights are quantized in a way that this program does not read", kTakeFloats);
        require(name.find(".lora_") == std::string::npos, tensor.file, ": ", name,
                ": an adapter; merge it into its model first");
        if (!is_ignored(tensor, checkpoint, layout)) unexpected.add(name);
    }
    const std::string faults = missing.message() + unexpected.message() + misshapen.message();
    require(faults.empty(), folder.string(), ": the tensors do not fit the model:", faults);
    for (const std::string& name : floats) {
        double first = 0;
        checkpoint.tensors().at(name).read(0, std::span(&first, 1));  // a dtype that cannot be read is said here
    }
}

}  // namespace

HfWeights::HfWeights(const fs::path& folder, const ParameterLayout& layout) : folder_(folder), layout_(layout) {
    for (const HfTensor& tensor : layout.tensors) {
        std::optional<Int4Matrix>& int4 = int4_.emplace_back();
        if (tensor.matrix && !folder_.tensors().contains(tensor.name))
            int4 = Int4Matrix::find(folder_, tensor.name, tensor.rows, tensor.cols);
    }
    check_tensors(folder, folder_, layout, int4_);
    for (std::size_t t = 0; t < int4_.size(); ++t)
        tensors_.push_back(int4_[t] ? nullptr : &folder_.tensors().at(layout.tensors[t].name));
}

std::size_t HfWeights::int4_matrices() const {
    return static_cast<std::size_t>(std::count(tensors_.begin(), tensors_.end(), nullptr));
}

void HfWeights::read_part(std::size_t tensor, std::int64_t row, std::int64_t column, std::span<float> out) const {
    if (const std::optional<Int4Matrix>& int4 = int4_[tensor])
        int4_reader_.read(*int4, row, column, out);
    else
        tensors_[tensor]->read(row * layout_.tensors[tensor].cols + column, out);
}

void HfWeights::read(std::int64_t first, std::span<float> out) const {
    const auto count = static_cast<std::int64_t>(out.size());
    std::fill(out.begin(), out.end(), 0.0f);
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const HfTensor& tensor = layout_.tensors[t];
        if (!reaches(tensor, first, count)) continue;
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            const RowPart part = row_part(tensor, row, first, count);
            if (part.count > 0) read_part(t, row, part.column, part.of(out));
        }
    }
}

void HfWeights::read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const {
    read_part(tensor, row, 0, out);
}

void HfWeights::read_int4_row(std::size_t tensor, std::int64_t row, std::span<std::uint32_t> words,
                              std::span<Bf16> scales) const {
    int4_reader_.read(*int4_[tensor], row, words, scales);
}

void check_export_folder(const fs::path& folder) {
    std::error_code error;
    const fs::file_status status = fs::status(folder, error);
    if (status.type() == fs::file_type::not_found) return;
    require(!error, folder.string(), ": ", error.message());
    require(fs::is_directory(status), folder.string(), ": exists and is not a folder; export to another path");
    require(fs::is_empty(folder, error) && !error, folder.string(),
            ": exists and is not empty; export to another path, or remove it first");
}

namespace {

/// The tensors of an export, in the layout's order. A matrix is quantized once, when its codes are written.
class ExportedTensors {
  public:
    ExportedTensors(const ParameterLayout& layout, const MasterWeights& master, ExportDtype dtype)
        : layout_(layout), master_(master) {
        const std::string_view floats = dtype == ExportDtype::float32 ? "F32" : "BF16";
        for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
            const HfTensor& tensor = layout.tensors[t];
            if (dtype != ExportDtype::int4 || !is_quantizable(tensor)) {
                add(t, Part::floats, {tensor.name, shape_of(tensor), floats});
                continue;
            }
            require(tensor.cols % kInt4Group == 0, "--export-dtype int4: ", tensor.name, " has ", tensor.cols,
                    " columns, not a multiple of ", kInt4Group, ", which have a scale each; export as bfloat16");
            add(t, Part::words, {tensor.name + "_packed", {tensor.rows, tensor.cols / kInt4PerWord}, "I32"});
            add(t, Part::scales, {tensor.name + "_scale", {tensor.rows, tensor.cols / kInt4Group}, "BF16"});
            add(t, Part::shape, {tensor.name + "_shape", {2}, "I64"});
        }
    }

    const std::vector<TensorSpec>& specs() const { return specs_; }

    /// A RowSource.
    void row(std::size_t index, std::int64_t row, std::span<std::byte> out) {
        const Place& place = places_[index];
        const HfTensor& tensor = layout_.tensors[place.tensor];
        const auto groups = static_cast<std::size_t>(tensor.cols / kInt4Group);
        if (place.part == Part::shape) {
            const std::int64_t shape[] = {tensor.rows, tensor.cols};
            return copy(std::as_bytes(std::span(shape)), out);
        }
        if (place.part == Part::words) scales_.resize(static_cast<std::size_t>(tensor.rows) * groups);
        const std::span scales = place.part == Part::floats
                                     ? std::span<Bf16>()
                                     : std::span(scales_).subspan(static_cast<std::size_t>(row) * groups, groups);
        if (place.part == Part::scales) return copy(std::as_bytes(scales), out);
        // The only row of a bias consists of its tensor's rows of one element.
        const auto cols = static_cast<std::size_t>(tensor.cols);
        const std::int64_t rows = tensor.matrix ? 1 : tensor.rows;
        std::vector<float> values(static_cast<std::size_t>(rows) * cols);
        std::vector<std::uint32_t> words(cols / kInt4PerWord);
        const bool has_codes = place.part == Part::words && master_.is_int4(place.tensor);
        if (has_codes)
            master_.read_int4_row(place.tensor, row, words, scales);
        else
            for (std::int64_t i = 0; i < rows; ++i)
                master_.read_row(place.tensor, row + i,
                                 std::span(values).subspan(static_cast<std::size_t>(i) * cols, cols));
        if (place.part == Part::floats) return store_floats(specs_[index].dtype, values, out);
        if (!has_codes) quantize_row(values, words, scales);
        copy(std::as_bytes(std::span(words)), out);
    }

  private:
    enum class Part : std::uint8_t { floats, words, scales, shape };
    struct Place {
        std::size_t tensor;  // of the layout
        Part part;
    };
    void add(std::size_t tensor, Part part, TensorSpec spec) {
        places_.push_back({tensor, part});
        specs_.push_back(std::move(spec));
    }
    /// The layers' matrices; embedding and head stay in bf16.
    static bool is_quantizable(const HfTensor& tensor) {
        return tensor.matrix && tensor.name != kEmbedding && tensor.name != kHead;
    }
    static void copy(std::span<const std::byte> from, std::span<std::byte> out) {
        std::copy(from.begin(), from.end(), out.begin());
    }

    const ParameterLayout& layout_;
    const MasterWeights& master_;
    std::vector<TensorSpec> specs_;
    std::vector<Place> places_;
    std::vector<Bf16> scales_;  // of the matrix whose codes were written last
};

}  // namespace

void export_weights(const fs::path& folder, const ModelConfig& model, const ParameterLayout& layout,
                    const MasterWeights& master, ExportDtype dtype, std::int64_t max_shard_bytes,
                    const std::optional<RunTokenizer>& tokenizer) {
    check_export_folder(folder);
    fs::path target = fs::absolute(folder).lexically_normal();
    if (!target.has_filename()) target = target.parent_path();  // "runs/out/"

    ExportedTensors tensors(layout, master, dtype);
    nlohmann::json config = to_hf_json(model);
    config["torch_dtype"] = dtype == ExportDtype::float32 ? "float32" : "bfloat16";
    if (dtype == ExportDtype::int4) config["quantization_config"] = packed_quantization();

    const fs::path aside = target.string() + ".partial";
    std::error_code ignored;
    fs::remove_all(aside, ignored);  // a run that was killed may have left it
    try {
        make_folders(aside);
        write_safetensors_folder(
            aside, tensors.specs(), max_shard_bytes,
            [&](std::size_t index, std::int64_t row, std::span<std::byte> out) { tensors.row(index, row, out); });
        replace_file(aside / "config.json", bytes_of(config.dump(2) + "\n"));
        if (tokenizer) copy_tokenizer(*tokenizer, aside);
        complete_export(aside, model);
        rename_path(aside, target);
    } catch (...) {
        fs::remove_all(aside, ignored);
        throw;
    }
    sync_folder(target.parent_path());
}

}  // namespace coda
