// What a block opens and closes again.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {

/// A new scope within `parent`, until the end of the block.
class Inner {
  public:
    Inner(Scope*& current, Scope* parent, std::vector<std::unique_ptr<Scope>>& kept)
        : current_(current), outer_(current), kept_(kept), scope_(std::make_unique<Scope>()) {
        scope_->parent = parent;
        current_ = scope_.get();
    }
    ~Inner() {
        current_ = outer_;
        if (scope_->kept) kept_.push_back(std::move(scope_));
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

  private:
    Scope*& current_;
    Scope* outer_;
    std::vector<std::unique_ptr<Scope>>& kept_;
    std::unique_ptr<Scope> scope_;
};

/// Statements and expressions within each other, macros included, have a limit that the stack bears.
class Deeper {
  public:
    explicit Deeper(int& depth) : depth_(depth) {
        constexpr int kMost = 1000;
        require(++depth_ <= kMost, "statements and expressions are nested more than ", kMost, " deep");
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

  private:
    int& depth_;
};

}  // namespace coda::jinja
