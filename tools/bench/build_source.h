// Which code a benchmark was built from; written by cmake/SourceHash.cmake at every build.
#pragma once

namespace coda::bench {

/// HEAD when it was built, 12 digits; "no git" outside a repository.
const char* build_commit();

/// SHA-256 over the names and contents of every file under kernels/ and src/: it tells apart trees that `git` calls
/// changed alike.
const char* build_source_hash();

}  // namespace coda::bench
