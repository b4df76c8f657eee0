#include "src/model/exchanges.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/cost.h"
#include "src/model/late_products.h"
#include "src/model/square_sums.h"

namespace coda {

StartExchange Exchanges::start(StartExchange::How how, const View& source) {
    StartExchange op;
    op.source = source;
    op.how = how;
    op.ranks = division_.ranks();
    op.rank = division_.rank();
    op.transfer = transfers_++;
    return op;
}

Exchanges::UnderWay Exchanges::scatter(StepList& step, const std::string& name, const View& source, View& target) {
    StartExchange op = start(StartExchange::How::scatter, source);
    op.target = write(target);
    step(text("send_", name), op);
    return {name, source, target, op.transfer};
}

Exchanges::UnderWay Exchanges::gather(StepList& step, const std::string& name, const View& source) {
    StartExchange op = start(StartExchange::How::gather, source);
    View target = buffers_.activation(text("all ranks' ", name), source.dtype, division_.ranks(), source.cols);
    op.target = write(target);
    step(text("send_", name), op);
    return {name, {}, target, op.transfer};
}

Exchanges::UnderWay Exchanges::gather_in_place(StepList& step, const std::string& name, const View& whole) {
    const std::int64_t rank = division_.rank(), ranks = division_.ranks(), part = whole.cols / ranks;
    StartExchange op = start(StartExchange::How::gather, part_of(whole, rank * part, part));
    if (rank > 0) op.before = part_of(whole, 0, rank * part);
    if (rank + 1 < ranks) op.after = part_of(whole, (rank + 1) * part, (ranks - 1 - rank) * part);
    step(text("send_", name), op);
    return {name, {}, whole, op.transfer};
}

View Exchanges::finish(StepList& step, const UnderWay& under_way) {
    FinishExchange op;
    op.source = under_way.source;
    View target = under_way.target;
    op.target = write(target);
    op.transfer = under_way.transfer;
    step(text("receive_", under_way.name), op);
    return target;
}

void Exchanges::reduce(StepList& step, const UnderWay& gathered, ReduceParts::How how, View& value) {
    const View parts = finish(step, gathered);
    step(text("all_", gathered.name), ReduceParts{.parts = parts, .out = write(value), .how = how});
}

namespace {

/// The last step that writes elements of `range`, and the value that it makes.
struct LastWrite {
    std::size_t step = 0;
    std::uint32_t version = 0;
};

LastWrite last_write(const Schedule& schedule, const View& segment, std::int64_t first, std::int64_t count) {
    const View range = part_of(segment, first, count);
    LastWrite last;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        for_each_operand(schedule[i].op, [&](const char*, const View& view, Access access) {
            if (access != Access::in && overlap(view, range)) last = {i, view.version};
        });
    }
    require(last.version > 0, "no step writes the gradients from element ", first, " on");
    return last;
}

struct ReadyBucket {
    std::size_t index;  // of division.buckets()
    Bucket bucket;
    LastWrite last;
};

/// In the order in which their gradients become final.
std::vector<ReadyBucket> ready_buckets(const Division& division, const View& gradient, const Schedule& schedule) {
    std::vector<ReadyBucket> ready;
    for (const Bucket& bucket : division.buckets()) {
        ready.push_back(
            {ready.size(), bucket, last_write(schedule, gradient, bucket.first, bucket.part * division.ranks())});
    }
    std::stable_sort(ready.begin(), ready.end(),
                     [](const ReadyBucket& a, const ReadyBucket& b) { return a.last.step < b.last.step; });
    return ready;
}

bool touches(const Op& op, const View& memory) {
    bool found = false;
    for_each_operand(op, [&](const char*, const View& view, Access) { found = found || overlap(view, memory); });
    return found;
}

bool is_attention(const Step& step) { return work_of(step.op) == Work::attention; }

constexpr std::ptrdiff_t kSlots = 2;  // buckets under way

/// The exchanges of one pass, one bucket after the other.
class GradientExchange {
  public:
    GradientExchange(Exchanges& exchanges, const View& gradient, View squares)
        : exchanges_(exchanges), gradient_(gradient), squares_(squares), sums_(exchanges.division()) {
        write(squares_);
        const Division& division = exchanges.division();
        for (std::size_t s = 0; s < slots_.size(); ++s) {
            slots_[s] = exchanges.buffers().activation(text("gradients of all ranks ", s), gradient.dtype,
                                                       division.ranks(), division.largest_part());
        }
    }

    /// A product or an attention step lasts as long as a transfer at least: what was under way has arrived after it.
    void pass_long_step() {
        for (Sent& sent : sent_) sent.arrived = true;
    }
    /// Whether a bucket can be sent without waiting for one before.
    bool has_room() const { return !sent_[next_].under_way || sent_[next_].arrived; }

    void send(StepList& step, const ReadyBucket& ready) {
        Sent& sent = sent_[next_];
        if (sent.under_way) add(step, sent);
        View& slot = slots_[next_];
        slot.cols = slot.ld = ready.bucket.part;
        next_ = 1 - next_;
        sent.arrived = false;
        sent.bucket = ready.index;
        sent.own = part(ready.bucket.part_of(exchanges_.division().rank()), ready.last.version);
        const ElementRange whole{ready.bucket.first, ready.bucket.part * exchanges_.division().ranks()};
        sent.under_way = exchanges_.scatter(step, "gradients", part(whole, ready.last.version), slot);
    }

    /// Squares what has been added, then adds and squares what is still under way, the older first.
    void finish(StepList& step) {
        square(step);
        for (int i = 0; i < kSlots; ++i, next_ = 1 - next_)
            if (sent_[next_].under_way) add(step, sent_[next_]);
        square(step);
    }

  private:
    struct Sent {
        std::optional<Exchanges::UnderWay> under_way;
        bool arrived = false;  // as far as the list tells
        std::size_t bucket = 0;
        View own;
    };

    View part(const ElementRange& range, std::uint32_t version) const {
        View view = part_of(gradient_, range.first, range.count);
        view.version = version;
        return view;
    }

    void add(StepList& step, Sent& sent) {
        const View parts = exchanges_.finish(step, *sent.under_way);
        slots_[static_cast<std::size_t>(&sent - sent_.data())].version = parts.version;
        step("sum_gradients", ReduceParts{.parts = parts, .out = write(sent.own), .how = ReduceParts::How::sum});
        sent.under_way.reset();
        added_.push_back(sent);
    }

    void square(StepList& step) {
        for (const Sent& sent : std::exchange(added_, {}))
            step("sum_squares", SumSquares{.grad = sent.own, .sums = sums_.of_bucket(squares_, sent.bucket)});
    }

    Exchanges& exchanges_;
    View gradient_, squares_;
    SquareSums sums_;
    std::array<View, kSlots> slots_;
    std::array<Sent, kSlots> sent_;
    std::vector<Sent> added_;  // and not squared
    std::size_t next_ = 0;     // slot
};

}  // namespace

std::vector<Exchanges::UnderWay> receive_where_read(const std::vector<Exchanges::UnderWay>& arriving,
                                                    Schedule& schedule) {
    const Schedule made = std::exchange(schedule, {});
    const auto begins = [](std::int32_t transfer) {
        return [=](const Step& step) {
            const auto* start = std::get_if<StartExchange>(&step.op);
            return start && start->transfer == transfer;
        };
    };
    std::multimap<Schedule::const_iterator, Op> waits;  // before the step
    std::vector<Exchanges::UnderWay> left;
    for (const Exchanges::UnderWay& each : arriving) {
        const auto begun = std::find_if(made.begin(), made.end(), begins(each.transfer));
        const bool here = begun != made.end();
        const auto first = std::find_if(here ? begun + 1 : made.begin(), made.end(),
                                        [&](const Step& step) { return touches(step.op, each.target); });
        FinishExchange op{.source = {}, .target = {}, .transfer = each.transfer};
        View target = each.target;
        if (here) op.target = write(target);
        if (first == made.end()) {
            left.push_back(each);
        } else {
            waits.emplace(first, op);
        }
    }
    StepList step(schedule);
    for (auto at = made.begin(); at != made.end(); ++at) {
        step.enter(at->phase, at->layer);
        for (auto [wait, end] = waits.equal_range(at); wait != end; ++wait) step("receive_weights", wait->second);
        schedule.push_back(*at);
    }
    return left;
}

void exchange_gradients(Exchanges& exchanges, const View& gradient, View squares, Schedule& schedule) {
    put_products_last(schedule);
    const Schedule made = std::exchange(schedule, {});
    StepList step(schedule);
    GradientExchange exchange(exchanges, gradient, squares);
    const std::vector<ReadyBucket> ready = ready_buckets(exchanges.division(), gradient, made);
    auto next = ready.begin();
    std::ptrdiff_t attention = std::count_if(made.begin(), made.end(), is_attention);  // steps that are left
    for (std::size_t i = 0; i < made.size(); ++i) {
        const auto waiting = std::find_if(next, ready.end(), [&](const ReadyBucket& b) { return b.last.step >= i; });
        const bool now = is_attention(made[i]);
        // What later attention steps have room for waits for them.
        while (next != waiting && (now || waiting - next > kSlots * attention) && exchange.has_room())
            exchange.send(step, *next++);
        schedule.push_back(made[i]);
        step.enter(made[i].phase, made[i].layer);
        if (now) --attention;
        if (now || work_of(made[i].op) == Work::gemm) exchange.pass_long_step();
    }
    for (; next != ready.end(); ++next) exchange.send(step, *next);
    exchange.finish(step);
}

}  // namespace coda
