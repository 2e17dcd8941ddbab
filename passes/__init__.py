"""How a program changes: one file per pass, named after it (`dtp_parallelize.py` holds `dtp-parallelize`)."""
