#include "src/model/tensors/activation.h"

namespace coda {

void Activation::read_codes(const Scale& scale, const CodeViews& codes, bool keeps_columns) {
    scale_ = scale;
    codes_ = codes;
    keeps_columns_ = keeps_columns;
}

void Activation::replace(const Activation& other) {
    storage_ = other.storage_;
    codes_.columns = other.codes_.columns;
}

void Activation::keep_rows(std::int64_t rows) {
    if (storage_) storage_ = storage_.row_slice(0, rows);
}

void Activation::from(StepList& step, const View& storage, const View& rstd) {
    storage_ = storage;
    rstd_ = rstd;
    if (scale_ && !made_) step(std::string(name_) + "_f8", QuantiseF8{.x = storage_, .rstd = rstd_, .codes = codes()});
}

void Activation::transpose(StepList& step) {
    if (!scale_ || keeps_columns_) return;
    const Rounded codes{.scale = scale_.scale, .columns = write(codes_.columns)};
    step(std::string(name_) + "_f8_t", QuantiseF8{.x = storage_, .rstd = rstd_, .codes = codes});
}

Result Activation::result() { return scale_ ? Result(codes()) : Result(store()); }

Rounded Activation::codes() {
    if (!scale_) return {};
    made_ = true;
    return {.scale = scale_.scale,
            .rows = codes_.rows ? write(codes_.rows) : View{},
            .columns = keeps_columns_ && codes_.columns ? write(codes_.columns) : View{},
            .amax = scale_.amax ? write(scale_.amax) : View{}};
}

View Activation::again() { return again_ && !scale_ ? write(again_) : View{}; }

}  // namespace coda
