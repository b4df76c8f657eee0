// The readers of files from elsewhere, each as a function of arbitrary bytes.
//
// A target may refuse its input only with coda::Error. It throws std::logic_error when input that it accepted breaks a
// promise of the reader. The libFuzzer programs and tests/fuzz/corpus_test.cpp drive the same targets.
#pragma once

#include <cstddef>
#include <span>

namespace coda::fuzz {

/// A safetensors file: its tensors cover the data, and every element of a readable dtype can be read.
void safetensors(std::span<const std::byte> input);

/// A token shard: all its tokens can be read, or an id is refused.
void shard(std::span<const std::byte> input);

/// A configuration, and a Hugging Face config.json: an accepted one survives being written and read again.
void config(std::span<const std::byte> input);

}  // namespace coda::fuzz
