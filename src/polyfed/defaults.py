"""What a user gets who chooses nothing; here, because the command line must know it without importing torch.

The method is the one with the best mean rank on validation rows of nine tables (docs/results/tables.md).
"""

METHOD = "pfed-hier"
COMPARED = ("pfed-hier", "pfed-mul", "local")
