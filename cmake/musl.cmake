# Builds for musl with Debian's musl-gcc:
#   cmake -S . -B build/musl -G Ninja -DTSLAB_BUILD=release -DCMAKE_TOOLCHAIN_FILE=cmake/musl.cmake
# Package: musl-tools. It has no C++ library: musl-gcc compiles the one object of ours that is C++ and needs none, but
# no C++ program.
set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_CXX_COMPILER musl-gcc)
# The kernel's own headers, which musl's directory lacks. Last, for the rest of these directories is glibc's.
set(CMAKE_C_FLAGS_INIT "-idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu")
