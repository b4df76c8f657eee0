// Who continues next in the model.
#include <algorithm>

#include "kernels/core/error.h"
#include "tests/kernels/decode_model_sm.h"

namespace coda::test {

using namespace coda::hopper::decode;

void DecodeModel::run(double late) {
    std::vector<Warp> warps;
    for (Sm& sm : sms_) {
        for (int w = 0; w < kConsumerWarps; ++w) warps.push_back(consumer(sm, w));
        for (int w = 0; w < kEpilogueWarps; ++w) warps.push_back(epilogue(sm, w));
        warps.push_back(producer(sm));
        warps.push_back(copies(sm));
    }
    constexpr std::size_t kPerSm = kConsumerWarps + kEpilogueWarps + 2;
    constexpr std::size_t kProducer = kConsumerWarps + kEpilogueWarps;
    // One that waits exits where its SM leaves, sooner or later; copies that are under way still land.
    const auto go_on = [&](std::size_t i) {
        if (warps[i].go_on()) return true;
        Sm& sm = sms_[i / kPerSm];
        if (warps[i].done() || !sm.exiting || i % kPerSm > kProducer || random_() % 4 != 0) return false;
        if (i % kPerSm == kProducer) sm.all_issued = true;
        warps[i].leave();
        return true;
    };
    std::vector<std::size_t> order(warps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto ahead = static_cast<std::size_t>((1 - late) * static_cast<double>(order.size()));
    const auto sleeps = [&](std::size_t i) {
        const std::pair<int, int> warp{i / kPerSm, i % kPerSm};
        return std::find(options_.sleepers.begin(), options_.sleepers.end(), warp) != options_.sleepers.end();
    };
    // Warps of the first part go as far as they can; then one of the others takes a step. From time to time others are
    // late.
    for (int turn = 0;; ++turn) {
        if (turn % 64 == 0) std::shuffle(order.begin(), order.end(), random_);
        bool moved = false;
        for (std::size_t i = 0; i < ahead; ++i)
            for (int steps = static_cast<int>(random_() % 8) + 1; steps > 0 && !sleeps(order[i]) && go_on(order[i]);
                 --steps)
                moved = true;
        for (std::size_t i = ahead; i < order.size() && !moved; ++i) moved = !sleeps(order[i]) && go_on(order[i]);
        for (std::size_t i = 0; i < order.size() && !moved; ++i) moved = sleeps(order[i]) && go_on(order[i]);
        if (moved) continue;
        std::size_t waiting = 0;
        while (waiting < warps.size() && warps[waiting].done()) ++waiting;
        if (waiting == warps.size()) break;
        if (sms_[waiting / kPerSm].exiting) continue;
        fail(text("no warp can continue: SM ", waiting / kPerSm, " warp ", waiting % kPerSm, " waits for ",
                  warps[waiting].awaited()));
    }
    int last = 0;  // the step whose close nobody goes beyond
    const auto goes_on = [&](int step) {
        bool runs = false;
        for (int b = 0; b < plan_.operands.shape.batch; ++b) runs = runs || runs_after(b, step);
        return runs && step != options_.stop_after && step + 1 < options_.steps;
    };
    while (goes_on(last)) ++last;
    for (int b = 0; b <= plan_.operands.shape.batch; ++b)
        if (words_[static_cast<std::size_t>(exchange_.token + b)] != epoch(last + 1, 0) - 1)
            fail(text("the last step has no token of sequence ", b));
}

}  // namespace coda::test
