# Runs a Tcl script of SQLite's tests with the VFS of the loadable extension as the default one.
#
#   testfixture with_vfs.tcl EXTENSION SCRIPT [ARGUMENT...]
#
# What it is not: a test. It says nothing about results; .ci/sqlite_suite.sh counts them.
#
# SQLite makes its own VFS the default again when it is used after a shutdown, which tests do. So the first open after one loads the
# extension again, in the first interpreter and in those that tests create. (The environment is what interpreters have in common.) At the
# end it is checked that a new connection has our VFS.
# Tests remove database files by name. Of an attached one that leaves its directory and its tier (TIERSMITH_SQLITE_FAST), so `file delete`
# takes them along.

proc tiersmith_vfs_text {extension} {
    return [list set ::tiersmith_extension $extension]\n[string trim {
        proc tiersmith_load {} {
            set ::env(TIERSMITH_LOADED) 1
            tiersmith_sqlite3 tiersmith_loader :memory:
            sqlite3_enable_load_extension tiersmith_loader 1
            tiersmith_loader eval {SELECT load_extension($::tiersmith_extension)}
            tiersmith_loader close
        }
        if {[info commands tiersmith_sqlite3] eq ""} {
            rename sqlite3 tiersmith_sqlite3
            proc sqlite3 {args} {
                if {!$::env(TIERSMITH_LOADED)} { tiersmith_load }
                tiersmith_sqlite3 {*}$args
            }
            rename sqlite3_shutdown tiersmith_shutdown
            proc sqlite3_shutdown {} {
                set ::env(TIERSMITH_LOADED) 0
                tiersmith_shutdown
            }
        }
        # The VFS that models crashes goes on top of the default one; in the processes that use it SQLite was shut down before.
        if {[info commands tiersmith_crash_enable] eq ""} {
            rename sqlite3_crash_enable tiersmith_crash_enable
            proc sqlite3_crash_enable {args} {
                if {[lindex $args 0]} { tiersmith_load }
                tiersmith_crash_enable {*}$args
            }
        }
        # What is left of an attached database when its own file was removed. The tier's name: fast_of in src/vfs.rs.
        proc tiersmith_remove {name} {
            set path [regsub {(-tiersmith)+$} [tiersmith_file normalize $name] {}]
            tiersmith_file delete -force $path-tiersmith
            tiersmith_file delete $::env(TIERSMITH_SQLITE_FAST)/[string map {/ +} $path].tier
        }
        if {[info exists ::env(TIERSMITH_SQLITE_FAST)] && [info commands tiersmith_file] eq ""} {
            rename file tiersmith_file
            proc file {command args} {
                if {[string match del* $command]} {
                    foreach name $args { tiersmith_remove $name }
                }
                uplevel 1 [list tiersmith_file $command {*}$args]
            }
        }
    }]
}

set tiersmith_text [tiersmith_vfs_text [lindex $argv 0]]
eval $tiersmith_text
tiersmith_load

if {[info commands load_testfixture_extensions] ne ""} {
    rename load_testfixture_extensions tiersmith_load_testfixture_extensions
    proc load_testfixture_extensions {interpreter} {
        set result [tiersmith_load_testfixture_extensions $interpreter]
        interp eval $interpreter $::tiersmith_text
        return $result
    }
}

# A run in which the VFS was not used has shown nothing. The tests call this at their end.
rename vfs_unlink_test tiersmith_vfs_unlink_test
proc vfs_unlink_test {args} {
    sqlite3 tiersmith_witness tiersmith_witness.db
    set stats [tiersmith_witness eval {PRAGMA tiersmith_stats}]
    puts "the default VFS at the end: [expr {$stats eq {} ? {another} : {tiersmith}}]"
    tiersmith_witness close
    tiersmith_vfs_unlink_test {*}$args
}

set argv0 [lindex $argv 1]
set argv [lrange $argv 2 end]
set argc [llength $argv]
source $argv0
