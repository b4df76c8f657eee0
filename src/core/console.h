// What a person sees during a run: one line per step and, on a terminal, a progress bar below it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace coda {

struct StepReport {
    std::int64_t step = 0, steps = 0;
    double loss = 0, grad_norm = 0, lr = 0, ms = 0, tokens_per_s = 0, eta_s = 0;
};

/// "step   120/400 | loss 2.3481 | norm 0.91 | lr 2.87e-03 | 212 ms | 9.7k tok/s | eta 1m02s"
std::string step_line(const StepReport& report);

/// Seconds as "47s", "3m05s", "2h07m", "4d03h".
std::string duration_text(double seconds);

/// 1234567 as "1.23M", 9700 as "9.7k", 1.5e9 as "1.5B".
std::string count_text(double value);

/// Bytes as "1.50 GiB", "12.0 MiB", "300 B".
std::string bytes_text(double bytes);

/// Writes lines to `out`, through printable(). On a terminal the progress bar is redrawn below the last line; elsewhere
/// there are only lines.
class Console {
  public:
    /// What a line that cannot be written does, because `out` is closed or full. tolerated: nothing to a run, whose log
    /// has what matters; `err` says so once, and how many lines were lost when the console goes. thrown: it throws
    /// Error, since the lines are what the program was asked for.
    enum class Loss { tolerated, thrown };

    explicit Console(std::FILE* out = stdout, Loss loss = Loss::tolerated, std::FILE* err = stderr);
    ~Console();
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    void line(const std::string& text);
    void step(const StepReport& report);

  private:
    void write_line(const std::string& line);
    void erase_bar();
    void draw_bar(const StepReport& report);

    std::FILE* out_;
    Loss loss_;
    std::FILE* err_;
    bool terminal_;
    bool bar_ = false;
    std::int64_t lost_ = 0;  // lines
};

}  // namespace coda
