# Runs a Tcl script of SQLite's tests with the VFS of the loadable extension as the default one.
#
#   testfixture with_vfs.tcl EXTENSION SCRIPT [ARGUMENT...]
#
# What it is not: a test. It says nothing about results; .ci/sqlite_suite.sh counts them.
#
# SQLite makes its own VFS the default again when it is used after a shutdown, which tests do. So the first open after one loads the
# extension again, in the first interpreter and in those that tests create. (The environment is what interpreters have in common.) At the
# end it is checked that a new connection has our VFS.
# Tests look at database files by name, change, copy and remove them. The bytes of an attached one (TIERSMITH_SQLITE_FAST) are in its directory
# and on its tier, so the file commands of Tcl and of the tests ask the extension for them (src/inspect.rs), and `file delete` takes the directory
# and the tier along.

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
        # These VFSs go on top of the default one; in the processes that use them SQLite was shut down before.
        foreach command {sqlite3_crash_enable sqlite3_multiplex_initialize sqlite3_quota_initialize} {
            if {[info commands $command] eq "" || [info commands tiersmith_$command] ne ""} continue
            rename $command tiersmith_$command
            proc $command {args} [string map [list COMMAND tiersmith_$command CRASH [expr {$command eq "sqlite3_crash_enable"}]] {
                if {!(CRASH && ![lindex $args 0]) && (CRASH || !$::env(TIERSMITH_LOADED))} { tiersmith_load }
                COMMAND {*}$args
            }]
        }
        if {[info exists ::env(TIERSMITH_SQLITE_FAST)] && [info commands tiersmith_file] eq ""} {
            rename file tiersmith_file
            rename glob tiersmith_glob
            rename open tiersmith_open
            rename close tiersmith_close
            # What is left of an attached database when its own file was removed. The tier's name: fast_of in src/vfs.rs.
            proc tiersmith_remove {name} {
                set path [regsub {(-tiersmith)+$} [tiersmith_file normalize $name] {}]
                if {$path eq ""} return
                tiersmith_file delete -force -- $path-tiersmith
                tiersmith_file delete -- $::env(TIERSMITH_SQLITE_FAST)/[string map {/ +} $path].tier
            }
            # Database and role of a file that belongs to an attached database, or nothing.
            proc tiersmith_whose {name} {
                set path [tiersmith_file normalize $name]
                if {![catch {tiersmith_file readlink $path} target]} {
                    set path [tiersmith_file normalize [tiersmith_file join [tiersmith_file dirname $path] $target]]
                }
                foreach {ending role} {{} main -wal wal -journal journal} {
                    if {![string match *$ending $path]} continue
                    set database [string range $path 0 end-[string length $ending]]
                    if {[tiersmith_file isdirectory $database-tiersmith] && [tiersmith_file isfile $database]} {
                        return [list $database $role]
                    }
                }
                return {}
            }
            # Asks src/inspect.rs about a file: verb and arguments. Nothing when there is nobody to ask.
            proc tiersmith_ask {whose verb args} {
                lassign $whose database role
                if {!$::env(TIERSMITH_LOADED)} { tiersmith_load }
                if {[catch {tiersmith_sqlite3 tiersmith_look $database -vfs tiersmith}]} { return {} }
                if {[catch {tiersmith_look eval "PRAGMA tiersmith_inspect='[concat $verb $role $args]'"} answer]} { set answer {} }
                tiersmith_look close
                return [lindex $answer 0]
            }
            proc tiersmith_contents {name} {
                set whose [tiersmith_whose $name]
                if {$whose ne {} && [set hex [tiersmith_ask $whose read 0 1000000000]] ne "none"} {
                    return [binary format H* $hex]
                }
                set channel [tiersmith_open $name rb]
                set bytes [read $channel]
                tiersmith_close $channel
                return $bytes
            }
            proc tiersmith_copy {from to} {
                set bytes [tiersmith_contents $from]
                set whose [tiersmith_whose $to]
                if {$whose ne {}} {
                    binary scan $bytes H* hex
                    tiersmith_ask $whose truncate 0
                    if {$hex eq "" || [tiersmith_ask $whose write 0 $hex] ne ""} return
                }
                set channel [tiersmith_open $to wb]
                puts -nonewline $channel $bytes
                tiersmith_close $channel
            }
            # Arguments of `file copy` and `file rename` that are about one file of an attached database, or nothing.
            proc tiersmith_two {names} {
                set names [lsearch -all -inline -not $names -*]
                lassign $names from to
                if {[llength $names] != 2 || ![tiersmith_file isfile $from] && [tiersmith_whose $from] eq {}} { return {} }
                if {[tiersmith_file isdirectory $to]} { return {} }
                if {[tiersmith_whose $from] eq {} && [tiersmith_whose $to] eq {}} { return {} }
                return $names
            }
            proc file {command args} {
                set whose {}
                if {[string match s*z* $command] || [string match exis* $command]} { set whose [tiersmith_whose [lindex $args 0]] }
                if {$whose ne {} && ([string match s*z* $command] || [lindex $whose 1] ne "main")} {
                    set size [tiersmith_ask $whose size]
                    if {[string match exis* $command]} {
                        if {$size ne "none" && $size ne {}} { return 1 }
                    } elseif {[string is digit -strict $size]} {
                        return $size
                    }
                }
                if {$command eq "copy" && [set names [tiersmith_two $args]] ne {}} {
                    tiersmith_copy {*}$names
                    return
                }
                if {$command eq "rename" && [set names [tiersmith_two $args]] ne {}} {
                    tiersmith_copy {*}$names
                    set command delete
                    set args [lrange $names 0 0]
                }
                if {[string match del* $command]} {
                    foreach name [lsearch -all -inline -not $args -*] {
                        set whose [tiersmith_whose $name]
                        if {$whose ne {} && [lindex $whose 1] ne "main"} { tiersmith_ask $whose delete }
                        if {[lindex $whose 1] eq "main" && ![tiersmith_file exists $name-wal]} {
                            # The WAL stays, as it does beside a database that is removed.
                            if {[string is digit -strict [set size [tiersmith_ask [tiersmith_whose $name-wal] size]]] && $size > 0} {
                                set bytes [tiersmith_contents $name-wal]
                            }
                        }
                        tiersmith_remove $name
                        if {[info exists bytes]} {
                            set channel [tiersmith_open $name-wal wb]
                            puts -nonewline $channel $bytes
                            tiersmith_close $channel
                            unset bytes
                        }
                    }
                }
                uplevel 1 [list tiersmith_file $command {*}$args]
            }
            # The directories are not for the tests to see; a WAL and a journal are.
            proc glob {args} {
                set found [uplevel 1 [list tiersmith_glob {*}$args]]
                set shown {}
                foreach name $found {
                    if {![string match *-tiersmith $name]} { lappend shown $name }
                    if {![tiersmith_file isdirectory $name-tiersmith]} continue
                    foreach ending {-wal -journal} {
                        foreach pattern $args {
                            if {[string match $pattern $name$ending] && [file exists $name$ending]} {
                                lappend shown $name$ending
                                break
                            }
                        }
                    }
                }
                return $shown
            }
            # Through a channel: a copy, which is written back when it was not opened for reading only and is closed.
            proc open {name args} {
                set mode [lindex $args 0]
                if {$mode in {{} r rb RDONLY r+ rb+ r+b w wb w+ a a+} && [string index $name 0] ne "|" && [set whose [tiersmith_whose $name]] ne {}} {
                    set copy $::env(TIERSMITH_SQLITE_FAST)/channel[incr ::tiersmith_channels]
                    set there [expr {[tiersmith_ask $whose size] ne "none"}]
                    if {$there || [string match {[wa]*} $mode]} {
                        set channel [tiersmith_open $copy wb]
                        if {$there} { puts -nonewline $channel [tiersmith_contents $name] }
                        tiersmith_close $channel
                        set channel [tiersmith_open $copy {*}$args]
                        if {$mode ni {{} r rb RDONLY}} { set ::tiersmith_written($channel) [list $copy $name] }
                        return $channel
                    }
                }
                uplevel 1 [list tiersmith_open $name {*}$args]
            }
            proc close {channel args} {
                set result [uplevel 1 [list tiersmith_close $channel {*}$args]]
                if {[info exists ::tiersmith_written($channel)]} {
                    set names $::tiersmith_written($channel)
                    unset ::tiersmith_written($channel)
                    tiersmith_copy {*}$names
                }
                return $result
            }
            if {[info commands md5file] ne ""} {
                rename md5file tiersmith_md5file
                proc md5file {name args} {
                    if {[tiersmith_whose $name] ne {}} {
                        set copy $::env(TIERSMITH_SQLITE_FAST)/sum
                        set channel [tiersmith_open $copy wb]
                        puts -nonewline $channel [tiersmith_contents $name]
                        tiersmith_close $channel
                        set name $copy
                    }
                    tiersmith_md5file $name {*}$args
                }
            }
            # A second process gets SQLITE_BUSY: of a test that is run with processes and again with connections of one process, the second half
            # is left.
            rename source tiersmith_source
            proc source {args} {
                uplevel 1 [list tiersmith_source {*}$args]
                if {[tiersmith_file tail [lindex $args end]] eq "lock_common.tcl"} {
                    rename launch_testfixture tiersmith_launch_testfixture
                    proc launch_testfixture {args} {
                        if {[info level] > 1 && [lindex [info level -1] 0] eq "do_multiclient_test"} { return -code continue }
                        tiersmith_launch_testfixture {*}$args
                    }
                }
            }
            foreach command {hexio_read hexio_write} {
                if {[info commands $command] ne ""} { rename $command tiersmith_$command }
            }
            if {[info commands tiersmith_hexio_read] ne ""} {
                proc hexio_read {name offset bytes} {
                    set whose [tiersmith_whose $name]
                    if {$whose ne {} && [set hex [tiersmith_ask $whose read $offset $bytes]] ne "none"} { return $hex }
                    tiersmith_hexio_read $name $offset $bytes
                }
                proc hexio_write {name offset hex} {
                    set whose [tiersmith_whose $name]
                    if {$whose ne {} && [set bytes [tiersmith_ask $whose write $offset $hex]] ne "none"} { return $bytes }
                    tiersmith_hexio_write $name $offset $hex
                }
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
