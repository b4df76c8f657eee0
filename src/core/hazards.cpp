#include "src/core/hazards.h"

#include <algorithm>
#include <map>

#include "kernels/core/error.h"

namespace coda {

namespace {

constexpr std::int32_t kInitial = -1;  // "written by", for the contents of a persistent buffer when the schedule begins

/// What a range of bytes holds.
struct Contents {
    BufferId buffer = kNoBuffer;
    std::uint32_t version = 0;
    std::int32_t writer = kInitial;  // a step
    bool read = false;               // at least in part
};

/// A map from byte ranges to contents; ranges that were never written are absent.
class ByteMap {
  public:
    void write(std::int64_t begin, std::int64_t end, const Contents& contents) {
        if (begin >= end) return;
        split(begin);
        split(end);
        ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
        ranges_.emplace(begin, Range{end, contents});
    }

    /// Calls fn(contents or nullptr) for every range of [begin, end), gaps included.
    template <class Fn>
    void visit(std::int64_t begin, std::int64_t end, Fn&& fn) {
        auto it = ranges_.upper_bound(begin);
        if (it != ranges_.begin()) --it;
        std::int64_t at = begin;
        for (; it != ranges_.end() && it->first < end; ++it) {
            if (it->second.end <= at) continue;
            if (it->first > at) fn(nullptr);
            fn(&it->second.contents);
            at = it->second.end;
        }
        if (at < end) fn(nullptr);
    }

  private:
    struct Range {
        std::int64_t end;
        Contents contents;
    };

    void split(std::int64_t at) {
        auto it = ranges_.upper_bound(at);
        if (it == ranges_.begin()) return;
        --it;
        if (it->first < at && at < it->second.end) {
            const Range tail = it->second;
            it->second.end = at;
            ranges_.emplace(at, tail);
        }
    }

    std::map<std::int64_t, Range> ranges_;  // by begin
};

/// Calls fn(begin, end) for the contiguous byte ranges of a view, relative to its buffer.
template <class Fn>
void for_each_range(const View& view, Fn&& fn) {
    const std::int64_t element = size_of(view.dtype);
    if (view.ld == view.cols) return fn(view.offset, view.offset + view.count() * element);
    for (std::int64_t row = 0; row < view.rows; ++row) {
        const std::int64_t begin = view.offset + row * view.ld * element;
        fn(begin, begin + view.cols * element);
    }
}

struct NamedOperand {
    const char* name;
    View view;
    Access access;
};

bool scratch(const View& view) { return view.dtype == DType::u8; }

class Checker {
  public:
    Checker(const Schedule& schedule, const BufferTable& buffers, const MemoryPlan& plan)
        : schedule_(schedule), buffers_(buffers), plan_(plan) {}

    std::vector<std::string> run() {
        for (std::size_t b = 0; b < buffers_.size(); ++b) {
            if (buffers_.all()[b].lifetime == Lifetime::persistent && plan_.offset[b] >= 0) {
                const auto id = static_cast<BufferId>(b);
                bytes_.write(plan_.offset[b], plan_.offset[b] + buffers_.all()[b].bytes, {id, 0, kInitial});
            }
        }
        for (step_ = 0; step_ < static_cast<std::int32_t>(schedule_.size()); ++step_) check_step();
        return std::move(hazards_);
    }

  private:
    void check_step() {
        const Step& step = schedule_[static_cast<std::size_t>(step_)];
        std::vector<NamedOperand> operands;
        for_each_operand(step.op, [&](const char* name, const View& view, Access access) {
            operands.push_back({name, view, access});
        });
        for (const NamedOperand& operand : operands) {
            if (!in_bounds(operand)) return;
        }
        for (const NamedOperand& operand : operands) {
            if (operand.access != Access::out && !scratch(operand.view)) check_read(operand);
        }
        check_overlaps(step, operands);
        for (const NamedOperand& operand : operands) {
            if (operand.access == Access::out && !scratch(operand.view)) check_overwrite(operand);
        }
        for (const NamedOperand& operand : operands) {
            if (operand.access == Access::in) continue;
            for_each_range(operand.view, [&](std::int64_t begin, std::int64_t end) {
                const std::int64_t base = base_of(operand.view);
                bytes_.write(base + begin, base + end, {operand.view.buffer, operand.view.version, step_});
            });
        }
    }

    bool in_bounds(const NamedOperand& operand) {
        const Buffer& buffer = buffers_[operand.view.buffer];
        if (base_of(operand.view) >= 0 && operand.view.offset >= 0 && operand.view.ld >= operand.view.cols &&
            operand.view.offset + operand.view.span_bytes() <= buffer.bytes) {
            return true;
        }
        report(operand, text("lies outside buffer '", buffer.name, "' of ", buffer.bytes, " bytes"));
        return false;
    }

    void check_read(const NamedOperand& operand) {
        const View& view = operand.view;
        const std::uint32_t wanted = operand.access == Access::inout ? view.version - 1 : view.version;
        bool reported = false;
        for_each_range(view, [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t base = base_of(view);
            bytes_.visit(base + begin, base + end, [&](Contents* found) {
                if (found && found->buffer == view.buffer && found->version == wanted) {
                    found->read = true;
                } else if (!reported) {
                    reported = true;
                    report(operand, explain(view, wanted, found));
                }
            });
        });
    }

    void check_overwrite(const NamedOperand& operand) {
        const View& view = operand.view;
        bool reported = false;
        for_each_range(view, [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t base = base_of(view);
            bytes_.visit(base + begin, base + end, [&](const Contents* found) {
                if (reported || !found || found->buffer != view.buffer || found->writer == kInitial || found->read)
                    return;
                reported = true;
                report(operand, text("overwrites value ", found->version, " of '", buffers_[view.buffer].name,
                                     "' from ", describe(found->writer), ", which nothing has read"));
            });
        });
    }

    std::string explain(const View& view, std::uint32_t wanted, const Contents* found) const {
        const std::string meant = text("means value ", wanted, " of '", buffers_[view.buffer].name, "'");
        if (!found) return meant + ", which nothing has written yet";
        const std::string writer =
            found->writer == kInitial ? std::string("the start of the schedule") : describe(found->writer);
        if (found->buffer != view.buffer) {
            return text(meant, ", but its bytes were overwritten with '", buffers_[found->buffer].name, "' by ",
                        writer);
        }
        return text(meant, ", but finds value ", found->version, " from ", writer);
    }

    void check_overlaps(const Step& step, const std::vector<NamedOperand>& operands) {
        for (std::size_t i = 0; i < operands.size(); ++i) {
            for (std::size_t j = i + 1; j < operands.size(); ++j) {
                const NamedOperand &a = operands[i], &b = operands[j];
                if (a.access == Access::in && b.access == Access::in) continue;
                if (!overlap(a.view, b.view) || works_in_place(step.op, a.view, b.view)) continue;
                report(b, text("shares bytes with operand ", a.name, ", and ", name_of(step.op),
                               " does not work in place on them"));
            }
        }
    }

    bool overlap(const View& a, const View& b) const {
        bool found = false;
        for_each_range(a, [&](std::int64_t a_begin, std::int64_t a_end) {
            for_each_range(b, [&](std::int64_t b_begin, std::int64_t b_end) {
                found =
                    found || (base_of(a) + a_begin < base_of(b) + b_end && base_of(b) + b_begin < base_of(a) + a_end);
            });
        });
        return found;
    }

    static bool works_in_place(const Op& op, const View& a, const View& b) {
        const auto same = [](const View& x, const View& y) {
            return x.buffer == y.buffer && x.offset == y.offset && x.rows == y.rows && x.cols == y.cols &&
                   x.ld == y.ld && x.version == y.version;
        };
        return std::visit(
            [&]<class T>(const T& concrete) {
                if constexpr (T::traits.has(Trait::in_place)) {
                    for (const auto& [source, target] : concrete.in_place()) {
                        // The same elements: a shifted view would read what another tile has stored.
                        if (source.offset != target.offset || source.ld != target.ld) continue;
                        if ((same(a, source) && same(b, target)) || (same(a, target) && same(b, source))) return true;
                    }
                }
                return false;
            },
            op);
    }

    std::int64_t base_of(const View& view) const { return plan_.offset[static_cast<std::size_t>(view.buffer)]; }

    std::string describe(std::int32_t index) const {
        const Step& step = schedule_[static_cast<std::size_t>(index)];
        std::string where = text("step ", index, " '", step.name, "'");
        if (step.layer >= 0) where += text(" of layer ", step.layer);
        return where;
    }

    void report(const NamedOperand& operand, const std::string& what) {
        hazards_.push_back(text(describe(step_), ": operand ", operand.name, " ", what));
    }

    const Schedule& schedule_;
    const BufferTable& buffers_;
    const MemoryPlan& plan_;
    ByteMap bytes_;
    std::int32_t step_ = 0;
    std::vector<std::string> hazards_;
};

}  // namespace

std::vector<std::string> find_hazards(const Schedule& schedule, const BufferTable& buffers, const MemoryPlan& plan) {
    return Checker(schedule, buffers, plan).run();
}

void require_no_hazards(const std::string& schedule_name, const Schedule& schedule, const BufferTable& buffers,
                        const MemoryPlan& plan) {
    const std::vector<std::string> hazards = find_hazards(schedule, buffers, plan);
    if (hazards.empty()) return;
    std::string message = text("the ", schedule_name, " schedule has ", hazards.size(), " hazard(s):");
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(hazards.size(), kShown); ++i) message += "\n  " + hazards[i];
    throw Error(message);
}

}  // namespace coda
