"""The programs and tables of the DistIR paper."""
