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
constexpr const char* kLayers = "model.layers.";

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

/// The transpose of a matrix (rows, cols) whose rows `read_row(row, out)` gives, as (cols, rows).
template <class ReadRow>
void transpose(std::int64_t rows, std::int64_t cols, const ReadRow& read_row, std::vector<float>& out) {
    constexpr std::int64_t kRows = 16;  // that are read at a time: as many floats as a cache line has
    std::vector<float> block(static_cast<std::size_t>(kRows * cols));
    out.resize(static_cast<std::size_t>(rows * cols));
    for (std::int64_t first = 0; first < rows; first += kRows) {
        const std::int64_t count = std::min(kRows, rows - first);
        for (std::int64_t i = 0; i < count; ++i)
            read_row(first + i,
                     std::span(block).subspan(static_cast<std::size_t>(i * cols), static_cast<std::size_t>(cols)));
        for (std::int64_t c = 0; c < cols; ++c)
            for (std::int64_t i = 0; i < count; ++i)
                out[static_cast<std::size_t>(c * rows + first + i)] = block[static_cast<std::size_t>(i * cols + c)];
    }
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

/// The files' tensor that the layout's embedding is.
const FileTensor& embedding_of(const FileTensors& files, const ParameterLayout& layout) {
    const auto found = std::find_if(layout.tensors.begin(), layout.tensors.end(),
                                    [](const HfTensor& tensor) { return tensor.name == kEmbedding; });
    return files.tensors[files.places[static_cast<std::size_t>(found - layout.tensors.begin())].tensor];
}

/// Whether the checkpoint may have a tensor that the model does not have.
bool is_ignored(const StoredTensor& tensor, const SafetensorsFolder& checkpoint, const ParameterLayout& layout,
                const FileTensors& files) {
    for (const char* buffer : files.buffers) {
        if (tensor.name.ends_with(buffer)) return true;
    }
    if (tensor.name != kHead || !layout.tied()) return false;
    const std::string& name = embedding_of(files, layout).name;
    const auto embedding = checkpoint.tensors().find(name);
    if (embedding == checkpoint.tensors().end()) return false;
    require(same_values(tensor, embedding->second), tensor.file, ": ", kHead, " differs from ", name,
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
                   const FileTensors& files, std::span<const std::optional<Int4Matrix>> int4) {
    Fault missing("missing"), unexpected("unexpected"), misshapen("of another shape than the model's");
    std::set<std::string> expected, floats;
    for (const FileTensor& file : files.tensors) {
        if (const std::optional<Int4Matrix>& quantized = int4[file.parts.front()]) {
            expected.insert(quantized->parts().begin(), quantized->parts().end());
            continue;
        }
        expected.insert(file.name);
        floats.insert(file.name);
        const auto found = checkpoint.tensors().find(file.name);
        if (found == checkpoint.tensors().end()) {
            missing.add(file.name);
        } else if (found->second.shape != file.shape()) {
            misshapen.add(text(file.name, " ", shape_text(found->second.shape), " for ", shape_text(file.shape())));
        }
    }
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        if (expected.contains(name)) continue;
        require(!is_quantized(name), tensor.file, ": ", name,
                ": the weights are quantized in a way that this program does not read", kTakeFloats);
        require(name.find(".lora_") == std::string::npos, tensor.file, ": ", name,
                ": an adapter; merge it into its model first");
        if (!is_ignored(tensor, checkpoint, layout, files)) unexpected.add(name);
    }
    const std::string faults = missing.message() + unexpected.message() + misshapen.message();
    require(faults.empty(), folder.string(), ": the tensors do not fit the model:", faults);
    for (const std::string& name : floats) {
        double first = 0;
        checkpoint.tensors().at(name).read(0, std::span(&first, 1));  // a dtype that cannot be read is said here
    }
}

/// Gives the tensors the names that they have in a folder of a model without its head, if it is one.
void drop_prefix(FileTensors& files, const SafetensorsFolder& checkpoint) {
    const auto has_prefix = [&](const std::string& name) { return name.starts_with(files.prefix); };
    if (std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                    [&](const auto& tensor) { return has_prefix(tensor.first); }))
        return;
    for (FileTensor& file : files.tensors) {
        if (has_prefix(file.name)) file.name.erase(0, files.prefix.size());
    }
}

}  // namespace

HfWeights::HfWeights(const fs::path& folder, const ModelConfig& model, const ParameterLayout& layout)
    : folder_(folder), layout_(layout), files_(file_tensors(model, layout)), int4_(layout.tensors.size()) {
    drop_prefix(files_, folder_);
    for (const FileTensor& file : files_.tensors) {
        const bool may_be_int4 = file.matrix && !file.transposed && file.parts.size() == 1;
        if (may_be_int4 && !folder_.tensors().contains(file.name))
            int4_[file.parts.front()] = Int4Matrix::find(folder_, file.name, file.rows, file.cols);
    }
    check_tensors(folder, folder_, layout, files_, int4_);
    for (const FileTensor& file : files_.tensors)
        stored_.push_back(int4_[file.parts.front()] ? nullptr : &folder_.tensors().at(file.name));
}

std::size_t HfWeights::int4_matrices() const {
    return static_cast<std::size_t>(
        std::count_if(int4_.begin(), int4_.end(), [](const auto& matrix) { return matrix.has_value(); }));
}

std::span<const float> HfWeights::turned(std::size_t file) const {
    if (turned_file_ != file) {
        const FileTensor& tensor = files_.tensors[file];
        turned_file_.reset();  // of a file that cannot be read, nothing is kept
        transpose(
            tensor.cols, tensor.rows,
            [&](std::int64_t row, std::span<float> out) { stored_[file]->read(row * tensor.rows, out); }, turned_);
        turned_file_ = file;
    }
    return turned_;
}

void HfWeights::read_part(std::size_t tensor, std::int64_t row, std::int64_t column, std::span<float> out) const {
    if (const std::optional<Int4Matrix>& int4 = int4_[tensor]) return int4_reader_.read(*int4, row, column, out);
    const FilePlace& place = files_.places[tensor];
    const FileTensor& file = files_.tensors[place.tensor];
    const std::int64_t first = (place.first + row) * file.cols + column;
    if (!file.transposed) return stored_[place.tensor]->read(first, out);
    const std::span elements = turned(place.tensor).subspan(static_cast<std::size_t>(first), out.size());
    std::copy(elements.begin(), elements.end(), out.begin());
}

void HfWeights::read(std::int64_t first, std::span<float> out) const {
    std::fill(out.begin(), out.end(), 0.0f);
    for_each_row_part(layout_, first, static_cast<std::int64_t>(out.size()),
                      [&](std::size_t tensor, std::int64_t row, const RowPart& part) {
                          read_part(tensor, row, part.column, part.of(out));
                      });
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

/// The layers' matrices; embeddings and head stay in bf16.
bool is_quantizable(const FileTensor& file, const ParameterLayout& layout) {
    return file.matrix && layout.tensors[file.parts.front()].name.starts_with(kLayers);
}

/// The layers' matrices in an export as int4.
struct Int4Export {
    std::int64_t elements = 0;         // of all matrices
    std::int64_t floats = 0;           // of the matrices that stay floats
    std::vector<std::string> modules;  // that have these
    std::set<std::int64_t> columns;    // their widths
};

Int4Export int4_export(const ModelConfig& model, const ParameterLayout& layout) {
    Int4Export made;
    for (const FileTensor& file : file_tensors(model, layout).tensors) {
        if (!is_quantizable(file, layout)) continue;
        require(!file.transposed, "--export-dtype int4: ", file.name,
                " is stored transposed, which the layout of 4-bit integers is not; export as bfloat16");
        made.elements += file.rows * file.cols;
        if (divides_into_groups(file.cols)) continue;
        made.floats += file.rows * file.cols;
        made.modules.push_back(file.name.substr(0, file.name.rfind(".weight")));
        made.columns.insert(file.cols);
    }
    require(made.floats < made.elements, "--export-dtype int4: no matrix of a layer has a multiple of ", kInt4Group,
            " columns, which have a scale each; export as bfloat16");
    return made;
}

/// The tensors of an export, in the files' order. A matrix is quantized once, when its codes are written, and turned
/// once, when the first row of its transpose is.
class ExportedTensors {
  public:
    ExportedTensors(const ModelConfig& model, const ParameterLayout& layout, const MasterWeights& master,
                    ExportDtype dtype)
        : files_(file_tensors(model, layout).tensors), layout_(layout), master_(master) {
        const std::string_view floats = dtype == ExportDtype::float32 ? "F32" : "BF16";
        for (const FileTensor& file : files_) {
            if (dtype != ExportDtype::int4 || !is_quantizable(file, layout) || !divides_into_groups(file.cols)) {
                add(file, Part::floats, {file.name, file.shape(), floats});
                continue;
            }
            add(file, Part::words, {file.name + "_packed", {file.rows, file.cols / kInt4PerWord}, "I32"});
            add(file, Part::scales, {file.name + "_scale", {file.rows, file.cols / kInt4Group}, "BF16"});
            add(file, Part::shape, {file.name + "_shape", {2}, "I64"});
        }
    }
    ExportedTensors(const ExportedTensors&) = delete;
    ExportedTensors& operator=(const ExportedTensors&) = delete;

    const std::vector<TensorSpec>& specs() const { return specs_; }

    /// A RowSource.
    void row(std::size_t index, std::int64_t row, std::span<std::byte> out) {
        const FileTensor& file = *places_[index].file;
        const Part part = places_[index].part;
        const auto groups = static_cast<std::size_t>(file.cols / kInt4Group);
        if (part == Part::floats) return store_floats(specs_[index].dtype, values(file, row), out);
        if (part == Part::shape) {
            const std::int64_t shape[] = {file.rows, file.cols};
            return copy(std::as_bytes(std::span(shape)), out);
        }
        if (part == Part::words) scales_.resize(static_cast<std::size_t>(file.rows) * groups);
        const std::span scales = std::span(scales_).subspan(static_cast<std::size_t>(row) * groups, groups);
        if (part == Part::scales) return copy(std::as_bytes(scales), out);
        std::vector<std::uint32_t> words(static_cast<std::size_t>(file.cols / kInt4PerWord));
        if (master_.is_int4(file.parts.front()))
            master_.read_int4_row(file.parts.front(), row, words, scales);
        else
            quantize_row(values(file, row), words, scales);
        copy(std::as_bytes(std::span(words)), out);
    }

  private:
    enum class Part : std::uint8_t { floats, words, scales, shape };
    struct Place {
        const FileTensor* file;
        Part part;
    };
    void add(const FileTensor& file, Part part, TensorSpec spec) {
        places_.push_back({&file, part});
        specs_.push_back(std::move(spec));
    }
    static void copy(std::span<const std::byte> from, std::span<std::byte> out) {
        std::copy(from.begin(), from.end(), out.begin());
    }

    /// `row` of (rows, cols), of the part that it falls into.
    void read_row(const FileTensor& file, std::int64_t row, std::span<float> out) const {
        auto part = file.parts.begin();
        for (; row >= layout_.tensors[*part].rows; ++part) row -= layout_.tensors[*part].rows;
        master_.read_row(*part, row, out);
    }

    /// A row as the file has it; the only one of a 1-D tensor consists of all rows. Valid until the next call.
    std::span<const float> values(const FileTensor& file, std::int64_t row) {
        if (file.transposed) {
            if (row == 0) {
                transpose(
                    file.rows, file.cols, [&](std::int64_t from, std::span<float> out) { read_row(file, from, out); },
                    values_);
            }
            return std::span(values_).subspan(static_cast<std::size_t>(row * file.rows),
                                              static_cast<std::size_t>(file.rows));
        }
        const std::int64_t rows = file.matrix ? 1 : file.rows;
        const auto cols = static_cast<std::size_t>(file.cols);
        values_.resize(static_cast<std::size_t>(rows) * cols);
        for (std::int64_t i = 0; i < rows; ++i)
            read_row(file, row + i, std::span(values_).subspan(static_cast<std::size_t>(i) * cols, cols));
        return values_;
    }

    std::vector<FileTensor> files_;
    const ParameterLayout& layout_;
    const MasterWeights& master_;
    std::vector<TensorSpec> specs_;
    std::vector<Place> places_;
    std::vector<float> values_;  // a row; the whole of a transposed matrix
    std::vector<Bf16> scales_;   // of the matrix whose codes were written last
};

}  // namespace

std::string int4_export_note(const ModelConfig& model, const ParameterLayout& layout) {
    const Int4Export made = int4_export(model, layout);
    if (made.floats == 0) return "";
    std::string columns;
    for (const std::int64_t number : made.columns) columns += text(columns.empty() ? "" : " and ", number);
    return text("note: ", (100 * made.floats + made.elements / 2) / made.elements,
                "% of the layers' weights stay in bf16: matrices of ", columns, " columns, which are no multiple of ",
                kInt4Group);
}

void export_weights(const fs::path& folder, const ModelConfig& model, const ParameterLayout& layout,
                    const MasterWeights& master, ExportDtype dtype, std::int64_t max_shard_bytes,
                    const std::optional<RunTokenizer>& tokenizer) {
    check_export_folder(folder);
    fs::path target = fs::absolute(folder).lexically_normal();
    if (!target.has_filename()) target = target.parent_path();  // "runs/out/"

    ExportedTensors tensors(model, layout, master, dtype);
    nlohmann::json config = to_hf_json(model);
    config["torch_dtype"] = dtype == ExportDtype::float32 ? "float32" : "bfloat16";
    if (dtype == ExportDtype::int4)
        config["quantization_config"] = packed_quantization(int4_export(model, layout).modules);

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
