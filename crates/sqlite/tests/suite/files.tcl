# Prints the names of the files of SQLite's "veryquick" tests, one a line.
#
#   testfixture files.tcl DIRECTORY_OF_THE_TESTS
#
# What it is not: it runs none of them. The list is SQLite's own, in permutations.test.

set testdir [lindex $argv 0]
set argv0 $testdir/veryquick.test
set argv {}
source $testdir/permutations.test
array set options $::testspec(veryquick)
foreach file [lsort $options(-files)] { puts [file tail $file] }
flush stdout
exit 0
