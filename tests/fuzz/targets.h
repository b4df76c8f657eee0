// The readers of files from elsewhere, each as a function of arbitrary bytes.
//
// A target may refuse its input only with coda::Error. It throws std::logic_error when input that it accepted breaks a
// promise of the reader. The libFuzzer programs and tests/fuzz/corpus_test.cpp drive the same targets.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>

namespace coda::fuzz {

inline void promise(bool kept, const char* what) {
    if (!kept) throw std::logic_error(what);
}

/// A safetensors file: its tensors cover the data, and every element of a readable dtype can be read.
void safetensors(std::span<const std::byte> input);

/// model.safetensors.index.json with two good shards: an accepted one names each of their tensors, in its shard.
void safetensors_index(std::span<const std::byte> input);

/// A safetensors file with a matrix (8, 256) of 4-bit integers: an accepted one can be read as a whole, and the same
/// row by row.
void int4_matrix(std::span<const std::byte> input);

/// A token shard: all its tokens can be read, or an id is refused.
void shard(std::span<const std::byte> input);

/// The mask of a token shard: an accepted one has a byte of two bits for each token.
void token_mask(std::span<const std::byte> input);

/// A multiple-choice evaluation shard: every example of an accepted one lies within it, in order.
void evaluation_shard(std::span<const std::byte> input);

/// meta.json of a checkpoint with one segment, completed with the right marker: an accepted one is of that step and
/// names only files of the checkpoint's folder.
void checkpoint_meta(std::span<const std::byte> input);

/// A configuration: an accepted one survives being written and read again.
void config(std::span<const std::byte> input);

/// A Hugging Face config.json: an accepted one is a model that a run can have, and survives export and import.
void hf_config(std::span<const std::byte> input);

/// log.jsonl of a run that is resumed: afterwards it has a header and no torn line, and no record of a later step.
void run_log(std::span<const std::byte> input);

/// A line of requests to coda_generate: an accepted one has one prompt and options that are valid; its text and the
/// text of an answer to it are whole characters.
void request(std::span<const std::byte> input);

/// A chat template: what an accepted one renders is UTF-8, and its runs cover it.
void chat_template(std::span<const std::byte> input);

/// A tokenizer.json, with a tokenizer_config.json after a byte 0x1E: an accepted one encodes text to ids that all can
/// be decoded, the same in parts between cuts. Only where the tokenizer is built.
void tokenizer(std::span<const std::byte> input);

/// A line of JSON as Python reads it: an accepted one is strict JSON once mended. Only where the tokenizer is built.
void json_line(std::span<const std::byte> input);

/// A line of fine-tuning data: an accepted conversation has a mask for each of its tokens, and no message of it spells
/// a special token. Only where the tokenizer is built.
void conversation(std::span<const std::byte> input);

}  // namespace coda::fuzz
