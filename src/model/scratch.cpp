#include "src/model/scratch.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace coda {

namespace {

template <class T, class Fn>
void for_each(const std::vector<Schedule*>& schedules, Fn&& fn) {
    for (Schedule* schedule : schedules) {
        for (Step& step : *schedule) {
            if (T* op = std::get_if<T>(&step.op)) fn(*op);
        }
    }
}

template <class T>
void add_scratch_of(BufferTable& buffers, const std::vector<Schedule*>& schedules) {
    if constexpr (T::traits.has(Trait::scratch_bytes)) {
        std::int64_t bytes = 0;
        for_each<T>(schedules, [&](const T& op) { bytes = std::max(bytes, op.scratch_bytes()); });
        if (bytes == 0) return;
        const View scratch = buffers.activation(text(T::name, " scratch"), DType::u8, 1, bytes);
        for_each<T>(schedules, [&](T& op) { op.scratch = scratch; });
    }
}

template <class... Ops>
void add_scratch_of_all(std::variant<Ops...>*, BufferTable& buffers, const std::vector<Schedule*>& schedules) {
    (add_scratch_of<Ops>(buffers, schedules), ...);
}

}  // namespace

void add_scratch(BufferTable& buffers, const std::vector<Schedule*>& schedules) {
    add_scratch_of_all(static_cast<Op*>(nullptr), buffers, schedules);
}

}  // namespace coda
