#!/usr/bin/env python3
"""Writes src/tokenize/chat/letter_case_tables.h: the upper, lower and title case that this Python gives to letters."""

import os

from replace_file import replace_file

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src/tokenize/chat/letter_case_tables.h")


def ranges(mapped):
    """(first, last, stride, delta) of characters at equal distances that move by the same amount."""
    found = []
    for code, delta in sorted(mapped.items()):
        if found and found[-1][3] == delta:
            first, last, stride, _ = found[-1]
            if code - last in (1, 2) and (stride == 0 or code - last == stride):
                found[-1] = (first, code, code - last, delta)
                continue
        found.append((code, code, 0, delta))
    return [(first, last, stride or 1, delta) for first, last, stride, delta in found]


def main():
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    lines = ["// Written by tools/make_letter_case.py.", "#pragma once", "", "#include <cstdint>", "",
             "namespace coda::jinja {", "",
             "/// Every stride-th character from first to last moves by delta.",
             "struct CaseRange {", "    char32_t first, last;", "    std::int32_t stride, delta;", "};",
             "/// A character whose other case is not one character, or not the one of the ranges.",
             "struct CaseText {", "    char32_t character;", "    const char32_t* text;", "};", ""]
    forms = {"Upper": str.upper, "Lower": str.lower, "Title": lambda c: c.title()}
    for name, form in forms.items():
        if name != "Title":
            one = {ord(c): ord(form(c)) - ord(c) for c in characters if len(form(c)) == 1 and form(c) != c}
            lines += ["// clang-format off", f"inline constexpr CaseRange k{name}Ranges[] = {{"]
            lines += pack(f"{{{a:#x}, {b:#x}, {s}, {d}}}" for a, b, s, d in ranges(one))
            lines += ["};"]
        other = [c for c in characters if (form(c) != c.upper() if name == "Title" else len(form(c)) > 1)]
        lines += [f"inline constexpr CaseText k{name}Texts[] = {{"] if name != "Title" else [
            "/// Title case, where it is not upper case.", "inline constexpr CaseText kTitleTexts[] = {"]
        lines += pack("{%#x, U\"%s\"}" % (ord(c), "".join("\\U%08x" % ord(part) for part in form(c))) for c in other)
        lines += ["};"]
    lines += ["// clang-format on", "", "}  // namespace coda::jinja"]
    text = "\n".join(lines) + "\n"
    first = text.index("// clang-format off\n") + len("// clang-format off\n")
    replace_file(FILE, text[:first] + text[first:].replace("// clang-format off\n", ""))


def pack(entries):
    line, lines = "   ", []
    for entry in entries:
        if len(line) + len(entry) > 116:
            lines.append(line)
            line = "   "
        line += f" {entry},"
    return [*lines, line]


if __name__ == "__main__":
    main()
