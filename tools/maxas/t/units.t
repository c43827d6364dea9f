#!/usr/bin/env perl
# Passes of the assembler by themselves, as data: input, result or words of the complaint.
use strict;
use warnings;
no warnings 'portable';
use File::Basename qw(dirname);
use Test::More;
use lib dirname(__FILE__) . '/../lib';
use MaxAs::Control qw(parse_control pack_control unpack_control control_text);
use MaxAs::Immediate qw(perl_allowed integer float_bits double_bits half_bits float_text double_text half_text);
use MaxAs::Operand qw(split_operands parse_operand);
use MaxAs::Registers;
use MaxAs::Source;
use MaxAs::Spelling qw(modern_opcode);
use MaxAs::Table;

my $AT = { file => 'test', line => 1, text => '' };

sub complaint {
    my ($code) = @_;
    return eval { $code->(); 1 } ? 'accepted' : ref $@ ? $@->message : $@;
}

sub registers { return MaxAs::Registers->new->define(map { MaxAs::Source->from_text($_, 'test') } @_) }

for my $case (['18', 18], ['-0x12', -18], ['4x<64*8 + 32>', 2176], ['1x<010>', 10], ['2x<(1 << 4) - 2**3>', 16], ['1x<7 % 4>', 3],
    ['0xffffffffffffffff', 0xffffffffffffffff]) {
    is(integer($case->[0]), $case->[1], "integer $case->[0]");
}
perl_allowed(0);
for my $text ('4x<1 ; 2>', '4x<system(1)>', '4x<"x" x 9>', '1x<1/0>', '0x1ffffffffffffffff', 'R1', '1.5') {
    isnt(complaint(sub { integer($text) }), 'accepted', "no integer: $text");
}

perl_allowed(1);
for my $case (['1', 0x3f800000], ['-0', 0x80000000], ['INF', 0x7f800000], ['-INF', 0xff800000], ['0x40400000', 0x40400000],
    ['1e-45', 1], ['3.4028234663852886e38', 0x7f7fffff], ['+QNAN', 0x7fffffff]) {
    is(float_bits($case->[0]), $case->[1], "float $case->[0]");
}
is(double_bits('-2.5'), 0xc004000000000000, 'double -2.5');
is(half_bits($_->[0]), $_->[1], "half $_->[0]") for ['1', 0x3c00], ['-2', 0xc000], ['0.5', 0x3800], ['65504', 0x7bff], ['6e-8', 1], ['INF', 0x7c00];
srand 20150106;
for (1 .. 2000) {
    my $bits = int rand 2**32;
    next if ($bits & 0x7f800000) == 0x7f800000;
    is(float_bits(float_text($bits)), $bits, 'float text reads back') or last;
    my $wide = $bits << 32 | int rand 2**32;
    is(double_bits(double_text($wide)), $wide, 'double text reads back') or last if ($wide >> 52 & 2047) != 2047;
    my $half = $bits & 0xffff;
    is(half_bits(half_text($half)), $half, 'half text reads back') or last if ($half & 0x7c00) != 0x7c00;
}

for my $bits (0x7e0, 0x7ff, 0x1fffff & ~(1 << 20), 0x1ffff) {
    my $control = unpack_control($bits);
    my $again = parse_control(control_text($control), $AT);
    $again->{reuse} = $control->{reuse};
    is(pack_control($again), $bits, sprintf 'control 0x%x', $bits);
}

is_deeply([split_operands('R0, c[0x0][0x140], [R2+0x10], 4x<1>, {5,4}')], ['R0', 'c[0x0][0x140]', '[R2+0x10]', '4x<1>', '{5,4}'], 'operands are split outside brackets');
for my $case (['-R3.H1', { kind => 'reg', name => 'R3', neg => 1, parts => '.H1', whole => 'R3.H1' }],
    ['R1.reuse', { kind => 'reg', name => 'R1', reuse => 1, whole => 'R1.reuse' }],
    ['!P4', { kind => 'pred', name => 'P4', not => 1 }], ['0x38.NEG', { kind => 'num', text => '0x38', neg => 1 }],
    ['c[0x3] [0x10]', { kind => 'const', bank => 3, off => 16, reg => undef, ureg => undef }],
    ['[R2 + -0x8]', { kind => 'addr', reg => 'R2', off => -8 }], ['{5,0}', { kind => 'mask', value => 33 }]) {
    is_deeply(parse_operand($case->[0]), $case->[1], "operand $case->[0]");
}
isnt(complaint(sub { parse_operand($_) }), 'accepted', "no operand: $_") for '', '[]', '--R1', '{6}', 'R1 R2', 'c[0x0]';

my $map = registers("3, 2, 11-12 : cx<00-01|64-65>y00\n4 = one, two\n8-10 ~ t, u[2]\n0-3 : C<0-3>\n");
is($map->number($_->[0]), $_->[1], "register $_->[0]") for ['cx00y00', 3], ['cx01y00', 2], ['cx64y00', 11], ['cx65y00', 12], ['two', 4], ['C2', 2], ['C', 0];
is($map->number('t'), undef, 'a pool register has no number yet');
is($map->{bank}{u}, 2, 'a bank is asked for');
like(complaint(sub { registers("0 : a\n1 : a\n") }), qr/^test:2: register 'a' defined twice, first at test:1/, 'twice');

is_deeply([modern_opcode($_->[0])], [@{$_}[1, 2]], "spelling $_->[0]") for ['TLD.B.LZ.NODEP.P', 'TLD.B.LZ.NODEP', 2], ['TEXS.T', 'TEXS', 1],
    ['DP4A.U8.U8', 'IDP.4A.U8.U8', 0], ['STS.U.128', 'STS.128', 0], ['LDG.E.CS', 'LDG.E.CI', 0], ['LOP.PASS_B.T', 'LOP.PASS_B.T', 0];

my ($source) = MaxAs::Source->from_text("a\nX1\nb X2 c\nd\n", 'f')->rewrite(qr/X(\d)/, sub { "new\n" x $_[1] . 'end' });
is_deeply([map { "$_->{text}:$_->{at}{line}" } $source->lines], ['a:1', 'new:2', 'end:2', 'b new:3', 'new:3', 'end c:3', 'd:4'], 'lines remember where they came from');

my $table = MaxAs::Table->load;
is($table->nearest_opcode('FMAA'), 'FFMA', 'the nearest opcode');
is($table->nearest_opcode('QWERTYUIOP'), undef, 'nothing is near');
is(scalar($table->rows_for('LDG.CI.E.128')), 1, 'suffixes in any order');
is(scalar($table->rows_for('LDG.E.E')), 0, 'no suffix twice');
done_testing();
