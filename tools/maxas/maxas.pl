#!/usr/bin/env perl
# maxas.pl: assembler and disassembler for Maxwell and Pascal machine code, in the MaxAs dialect. See sass/README.md.
use strict;
use warnings;
use File::Basename qw(dirname);
use lib dirname(__FILE__) . '/lib';
use MaxAs::Command;

exit MaxAs::Command::main(@ARGV);
