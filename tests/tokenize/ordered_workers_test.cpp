#include "src/tokenize/ordered_workers.h"

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <string>

#include "tests/catch.h"
#include "tests/tokenize/small_tokenizer.h"

using namespace coda;

namespace {

using Workers = OrderedWorkers<int, std::vector<int>>;

/// Work whose time varies: the item, as many times as its last digit says.
Workers::Work repeat() {
    return [](int& item) {
        std::this_thread::sleep_for(std::chrono::microseconds(item * 37 % 101));
        if (item == 77) throw std::runtime_error("item 77");
        return std::vector<int>(static_cast<std::size_t>(item % 10), item);
    };
}

}  // namespace

TEST_CASE("results come in the order of the work, whatever each takes", "[threads]") {
    Workers workers(4, 16, repeat);
    int submitted = 0, taken = 0, waiting_at_most = 0;
    while (taken < 500) {
        while (submitted < 500 && workers.has_room(1)) workers.submit(submitted++, 1);
        waiting_at_most = std::max(waiting_at_most, submitted - taken);
        INFO(taken);
        if (taken == 77) {
            CHECK_THROWS_AS(workers.take(), std::runtime_error);
        } else {
            REQUIRE(workers.take() == std::vector<int>(static_cast<std::size_t>(taken % 10), taken));
        }
        ++taken;
    }
    CHECK(workers.empty());
    CHECK(waiting_at_most == 16);
}

TEST_CASE("what is not taken is dropped at the end, and its work done or never begun", "[threads]") {
    std::atomic<int> begun = 0, done = 0;
    for (int trial = 0; trial < 20; ++trial) {
        std::atomic<bool> all_taken = false;
        Workers workers(3, 100, [&] {
            return [&, trial](int& item) {
                ++begun;
                do {
                    std::this_thread::sleep_for(std::chrono::microseconds(50));
                } while (item >= trial && !all_taken);
                ++done;
                return std::vector<int>();
            };
        });
        for (int item = 0; item < 50; ++item) workers.submit(item, 1);
        for (int item = 0; item < trial; ++item) workers.take();
        all_taken = true;
    }
    CHECK(begun == done);
    CHECK(begun < 20 * 50);
}

TEST_CASE("threads share a tokenizer and each encodes as a single thread does", "[threads]") {
    const Tokenizer tokenizer(small_spec({"a b", "ab ab", "1 2", "Ġ a"}, std::string(kLlama3Regex)));
    std::mt19937 random(5);
    std::vector<std::string> texts;
    for (int i = 0; i < 200; ++i) {
        std::string text;
        for (int letter = 0; letter < 60; ++letter) text += "ab 12\n!"[random() % 7];
        texts.push_back(text + (i % 3 == 0 ? "<|end|>" : ""));
    }
    const auto encode_all = [&] {
        Encoder encoder(tokenizer);
        std::vector<std::vector<std::uint32_t>> all(texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) encoder.encode(texts[i], all[i]);
        return all;
    };
    const auto alone = encode_all();
    std::vector<std::vector<std::vector<std::uint32_t>>> together(4);
    std::vector<std::thread> threads;
    for (auto& result : together) threads.emplace_back([&] { result = encode_all(); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : together) CHECK(result == alone);
}
