// Aligned tables and short units for people.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "forebay/v1/types.pb.h"

namespace forebay::ctl {

class Table {
 public:
  // A heading that begins with '>' is set flush right, for numbers.
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  // As many cells as there are headings.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  size_t rows() const { return rows_.size(); }
  // Headings, then rows; columns two spaces apart; no space at the end of a line.
  std::string Text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

// "850 ms", "12.3 s", "4 min 10 s", "3 h 5 min".
std::string Duration(uint64_t ms);
// Up to four significant digits: "0.3125", "1287".
std::string Decimal(double value);
// "12", with branch and policy if they are not the usual ones: "main/1/12".
std::string Version(const v1::PolicyVersion& version);
// Sixteen hex digits.
std::string Hex(uint64_t id);

}  // namespace forebay::ctl
