#!/bin/sh
# usage: tests/structure/link_lines_test.sh BUILD_FOLDER
#
# What the test programs of low layers link, by the link lines of build.ninja: a program that tokenizes or reads
# records needs no ranks, no engine and no update rules. Exit code 77 where the build has no build.ninja.
set -eu
[ -f "$1/build.ninja" ] || exit 77

status=0
may_link() { # may_link SUITE LAYER...
  suite=$1
  shift
  line=$(awk -v rule="^build zinc_tests_$suite: " '
    $0 ~ rule { is_here = 1 }
    is_here && /^  LINK_LIBRARIES =/ { print; exit }' "$ninja")
  [ -n "$line" ] || { echo "no link line of zinc_tests_$suite in $ninja" && status=1 && return; }
  for library in $(printf '%s\n' "$line" | grep -oE 'libzinc_[a-z]+\.(a|so)' | sort -u); do
    layer=${library#libzinc_}
    case " $* " in
      *" ${layer%.*} "*) ;;
      *) echo "zinc_tests_$suite links $library; it may link: $*" && status=1 ;;
    esac
  done
}

ninja=$1/build.ninja
may_link files files core
may_link text text files core
may_link data data text files nn autograd tensor kernels core
exit $status
