package MaxAs::Spelling;
# Where the dialect's spelling differs from the table's, which follows today's disassembler.
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(modern_opcode dialect_opcode);

my $TEXTURE = qr/^(?:TLD4S?|TLDS?|TEXS?|TXQ|TXD|TMML)\b/;

my $MEMORY = qr/^(?:LD|ST)([GLS]?)(?=\.|$)/;

# Opcode text of a source to (opcode text of the table, texture phase bits of the control word).
sub modern_opcode {
    my ($text) = @_;
    my $phase = 0;
    if ($text =~ $TEXTURE && $text =~ s/\.([TP])$//) { $phase = $1 eq 'T' ? 1 : 2 }
    $text =~ s/^DP([24])A\b/IDP.$1A/;
    if ($text =~ $MEMORY) {
        my $shared = $1 eq 'S';
        $text =~ s/\.(?:C[GISV]|LU|WT)(?=\.|$)//g if $shared;    # shared memory has no cache to speak of
        $text =~ s/\.32(?=\.|$)//;
        $text =~ s/^(LDS)(.*?)\.U((?:\.E)?)$/$1.U$2.32$3/;
    }
    $text =~ s/^STS\.U\b/STS/;
    $text =~ s/^(LDG\b.*)\.CS\b/$1.CI/;
    $text =~ s/^(STG\b.*)\.CI\b/$1.CS/;
    $text =~ s/^(XMAD)\.U16\.U16\b/$1/;
    return ($text, $phase);
}

sub dialect_opcode {
    my ($text) = @_;
    $text =~ s/^IDP\.([24])A\b/DP$1A/;
    return $text;
}

1;
