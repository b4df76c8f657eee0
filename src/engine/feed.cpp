#include "src/engine/feed.h"

#include <algorithm>

namespace coda {

void upload_scalar(Executor& executor, const View& view, double value) {
    switch (view.dtype) {
        case DType::f64: return executor.upload(view, &value);
        case DType::f32: {
            const auto single = static_cast<float>(value);
            return executor.upload(view, &single);
        }
        case DType::i32: {
            const auto integer = static_cast<std::int32_t>(value);
            return executor.upload(view, &integer);
        }
        default: throw Error(text("a scalar cannot be ", name_of(view.dtype)));
    }
}

double download_scalar(Executor& executor, const View& view) {
    double value = 0;
    float single = 0;
    std::int32_t integer = 0;
    switch (view.dtype) {
        case DType::f64: executor.download(view, &value); return value;
        case DType::f32: executor.download(view, &single); return single;
        case DType::i32: executor.download(view, &integer); return integer;
        default: throw Error(text("a scalar cannot be ", name_of(view.dtype)));
    }
}

std::vector<double> download_vector(Executor& executor, const View& view) {
    std::vector<double> values(static_cast<std::size_t>(view.count()));
    const auto read_as = [&](auto zero) {
        std::vector<decltype(zero)> stored(values.size());
        executor.download(view, stored.data());
        std::transform(stored.begin(), stored.end(), values.begin(),
                       [](auto value) { return static_cast<double>(value); });
    };
    switch (view.dtype) {
        case DType::f64: executor.download(view, values.data()); break;
        case DType::f32: read_as(float{}); break;
        case DType::bf16: read_as(Bf16{}); break;
        default: throw Error(text("no floating-point numbers: ", name_of(view.dtype)));
    }
    return values;
}

void apply_window(std::int64_t window, std::int64_t seq_len, std::span<std::int32_t> first_key) {
    for (std::size_t m = 0; window > 0 && m < first_key.size(); ++m) {
        const auto first = static_cast<std::int64_t>(m) % seq_len - window + 1;
        first_key[m] = static_cast<std::int32_t>(std::max<std::int64_t>(first_key[m], first));
    }
}

Feed::Feed(Executor& executor, const HostViews& host, TokenInput& tokens, std::int64_t seq_len)
    : executor_(executor), host_(host), tokens_(tokens), seq_len_(seq_len) {
    positions_.resize(static_cast<std::size_t>(host.tokens.cols));
    for (std::size_t m = 0; m < positions_.size(); ++m) {
        positions_[m] = static_cast<std::int32_t>(m % static_cast<std::size_t>(seq_len));
    }
    if (host.doc_start) doc_start_.resize(positions_.size());
}

void Feed::upload(const TokenBatch& batch) {
    tokens_.upload(batch.tokens);
    executor_.upload(host_.targets, batch.targets.data());
    if (host_.documents) document_starts(batch.begins, seq_len_, positions_, doc_start_);
    if (host_.doc_start) {
        apply_window(host_.window, seq_len_, doc_start_);
        executor_.upload(host_.doc_start, doc_start_.data());
    }
    executor_.upload(host_.positions, positions_.data());
}

}  // namespace coda
