// buffer-ctl: the operators' tool. All of it is in src/ctl.
#include <iostream>

#include "ctl/app.h"

int main(int argc, char** argv) {
  return forebay::ctl::Run({argv + 1, argv + argc}, std::cout, std::cerr);
}
