// What an executor needs in addition to an op: the addresses of its buffers and, with several ranks, the peers.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/operand.h"
#include "kernels/core/peers.h"

namespace coda {

/// Base address of every buffer, by BufferId. Addresses belong to the executor's memory (host or device).
class Memory {
  public:
    Memory() = default;
    /// `peers`: of an executor with several ranks; must outlive it.
    explicit Memory(std::vector<std::byte*> bases, Peers* peers = nullptr) : bases_(std::move(bases)), peers_(peers) {}

    /// Puts every view at nullptr, for checks of operands before memory is allocated.
    static Memory shapes_only() {
        Memory memory;
        memory.shapes_only_ = true;
        return memory;
    }

    std::byte* address(const View& view) const {
        if (shapes_only_) return nullptr;
        require(view.buffer >= 0 && view.buffer < static_cast<BufferId>(bases_.size()) &&
                    bases_[static_cast<std::size_t>(view.buffer)] != nullptr,
                "buffer ", view.buffer, " has no memory");
        return bases_[static_cast<std::size_t>(view.buffer)] + view.offset;
    }

    /// First element of a view; nullptr for an absent operand. Throws when T is not the view's dtype.
    template <class T>
    T* at(const View& view) const {
        if (!view) return nullptr;
        require(view.dtype == dtype_of<T>, "an operand of ", name_of(view.dtype), " was read as ",
                name_of(dtype_of<T>));
        return reinterpret_cast<T*>(address(view));
    }

    Peers& peers() const {
        require(peers_ != nullptr, "an op between ranks ran where there is only one");
        return *peers_;
    }

  private:
    std::vector<std::byte*> bases_;
    Peers* peers_ = nullptr;
    bool shapes_only_ = false;
};

}  // namespace coda
