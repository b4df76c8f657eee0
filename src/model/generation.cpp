#include "src/model/generation.h"

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "src/model/model.h"

namespace coda {

namespace {

/// All layers' caches in two buffers: keys and values apart, (layers S Hk C, hd), so that a chunk of positions of a
/// head is one piece of memory.
KeyValueCache add_cache(const BlockBuffers& buffers, const ModelConfig& model, const GenerationShape& shape) {
    const std::int64_t rows = model.num_hidden_layers * shape.batch * model.num_key_value_heads * shape.context;
    const auto add = [&](const char* name) {
        return buffers.persistent(name, MemorySegment::caches, buffers.precision().storage, rows, model.head_dim);
    };
    return {
        .keys = add("key cache"), .values = add("value cache"), .context = shape.context, .rows_each = shape.rows_each};
}

KeyValueCache of_layer(const KeyValueCache& cache, std::size_t layer, std::size_t layers) {
    const std::int64_t rows = cache.keys.rows / static_cast<std::int64_t>(layers);
    const std::int64_t first = static_cast<std::int64_t>(layer) * rows;
    return {.keys = cache.keys.row_slice(first, rows),
            .values = cache.values.row_slice(first, rows),
            .context = cache.context,
            .rows_each = cache.rows_each};
}

void use_cache(Model& model, const KeyValueCache& cache) {
    for (std::size_t l = 0; l < model.layers.size(); ++l) {
        model.layers[l].use_cache(of_layer(cache, l, model.layers.size()));
    }
}

SequenceRows add_rows(const BlockBuffers& buffers, const ModelConfig& model, const GenerationShape& shape) {
    const std::int64_t count = shape.batch * shape.rows_each;
    const auto input = [&](const char* name, std::int64_t rows, std::int64_t columns, DType dtype = DType::i32) {
        return buffers.persistent(name, MemorySegment::inputs, dtype, rows, columns);
    };
    return {.token = input("newest tokens", 1, count),
            .positions = input("newest positions", 1, count),
            .lengths = input("sequence lengths", 1, count),
            .state = input("sequence states", 1, count),
            .status = input("sequence status", 1, count),
            .limits = input("sequence limits", 1, count),
            .options = input("choice options", 1, ChooseToken::kOptionWords * count),
            .end_tokens = input("end tokens", count, kMostEndTokens),
            .seen = input("seen tokens", count, ceil_div(model.vocab_size, std::int64_t{32})),
            .logits = input("logits", count, padded_vocab(model), buffers.precision().storage)};
}

/// A row per token, each at its own position.
Schedule decode_schedule(Model model, SequenceRows rows) {
    Schedule schedule;
    StepList step(schedule);
    build_forward(model, step);
    model.head.decode(step, model.out(), rows);
    return schedule;
}

/// Ends with the last layer's keys and values: nothing reads what would follow. A prefill that fits in `window` hides
/// no key.
Schedule prefill_schedule(Model model, std::int64_t rows, std::int64_t window) {
    model.keep_rows(rows);
    if (rows <= window) model.batch.doc_start = {};
    Schedule schedule;
    StepList step(schedule);
    build_cache_fill(model, step);
    return schedule;
}

}  // namespace

std::vector<std::int64_t> prefill_lengths(std::int64_t context) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t rows = 128; rows < context; rows *= 2) {
        lengths.push_back(rows);
        require(lengths.size() < kPrefillPasses, "a context of ", context, " positions is longer than the ", rows,
                " that generation takes");
    }
    lengths.push_back(context);
    return lengths;
}

void add_generation(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options,
                    bool has_master, Schedules& schedules) {
    const GenerationShape& shape = options.generation;
    require(shape.batch >= 1 && shape.context >= 1 && shape.rows_each >= 1, "generation of ", shape.batch,
            " sequences of ", shape.context, " positions, ", shape.rows_each, " rows each: all must be positive");
    HostViews& host = schedules.host;
    const BlockBuffers buffers(schedules.buffers, options.precision);
    const std::vector<std::int64_t> lengths = prefill_lengths(shape.context);
    host.cache = add_cache(buffers, model, shape);
    host.sequences = add_rows(buffers, model, shape);
    const auto prompt_input = [&](const char* name, std::int64_t columns) {
        return buffers.persistent(name, MemorySegment::inputs, DType::i32, 1, columns);
    };
    host.prefill = {.tokens = prompt_input("prompt tokens", lengths.back()),
                    .positions = prompt_input("prompt positions", lengths.back()),
                    .place = prompt_input("prompt place", 3),
                    .doc_start = {},
                    .window = 0};
    const bool windowed = model.sliding_window > 0 && model.sliding_window < lengths.back();
    if (windowed) {
        host.prefill.doc_start = prompt_input("prompt first keys", lengths.back());
        host.prefill.window = model.sliding_window;
    }

    const Weights& weights = schedules.weights;
    const View rows = embedding_rows(layout, weights, host.master, has_master, host.embedding);
    const auto blocks = [&](const char* name, std::int64_t seq_len, std::int64_t sequences, const BatchInputs& batch) {
        Model made = make_model(layout, model_shape(model, seq_len, sequences), options, batch, weights, rows,
                                BlockBuffers(schedules.buffers, options.precision, name));
        made.keep_nothing();
        use_cache(made, host.cache);
        return made;
    };
    BatchInputs newest;
    newest.tokens = host.sequences.token;
    newest.positions = host.sequences.positions;
    newest.lengths = host.sequences.lengths;
    newest.rope = host.rope;
    schedules.decode = decode_schedule(blocks("decode ", 1, host.sequences.token.cols, newest), host.sequences);

    BatchInputs prompt;
    prompt.tokens = host.prefill.tokens;
    prompt.positions = host.prefill.positions;
    prompt.place = host.prefill.place;
    prompt.doc_start = host.prefill.doc_start;
    prompt.rope = host.rope;
    const Model longest = blocks("prefill ", lengths.back(), 1, prompt);
    for (const std::int64_t length : lengths)
        schedules.prefill.push_back(prefill_schedule(longest, length, model.sliding_window));
}

}  // namespace coda
