package MaxAs::Macro;
# Multiplication macros of schedule blocks. Control code and guard are copied to every instruction made.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Fail qw(fail);
use MaxAs::Spelling ();
our @EXPORT_OK = qw(is_macro expand_macro);

my $TYPES = qr/(?:\.[US]16\.[US]16)?/;

sub is_macro { return $_[0]{opcode} =~ /^XMAD$TYPES\.LO(?:2C?)?$/ }

sub expand_macro {
    my ($inst) = @_;
    my ($types, $kind) = $inst->{opcode} =~ /^XMAD($TYPES)\.(LO2?C?)$/;
    my @operands = @{ $inst->{operands} };
    my $wanted = $kind eq 'LO' ? 5 : 4;
    fail($inst->{at}, "$inst->{opcode}: $wanted operands wanted, " . @operands . ' given') if @operands != $wanted;
    my ($d, $a, $b, $c, $x) = @operands;
    fail($inst->{at}, "$inst->{opcode}: the destination must differ from the first factor") if $d eq $a;
    return map { _like($inst, @$_) } ["XMAD.MRG", $x, $a, "$b.H1", 'RZ'], ['XMAD', $d, $a, $b, $c],
        ['XMAD.PSL.CBCC', $d, "$a.H1", "$x.H1", $d] if $kind eq 'LO';
    my ($a2, $b2) = $kind eq 'LO2' ? ("$a.H1", $b) : ($a, "$b.H1");
    return map { _like($inst, @$_) } ["XMAD$types", $d, $a, $b, $c], ["XMAD$types.PSL", $d, $a2, $b2, $d];
}

sub _like {
    my ($inst, $opcode, @operands) = @_;
    my %at = %{ $inst->{at} };
    $at{now} = "$opcode " . join(', ', @operands) . ';';
    return { %$inst, at => \%at, opcode => (MaxAs::Spelling::modern_opcode($opcode))[0], written => $opcode,
        operands => \@operands, control => { %{ $inst->{control} } } };
}

1;
