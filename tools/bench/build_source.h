// The sources that a benchmark was built from; cmake/SourceHash.cmake writes this at every build.
#pragma once

namespace coda::bench {

/// HEAD at the build, 12 digits; "no git" outside a repository.
const char* build_commit();

/// SHA-256 over the names and contents of every file under kernels/ and src/. It distinguishes two trees that `git`
/// both reports as changed.
const char* build_source_hash();

}  // namespace coda::bench
