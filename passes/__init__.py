"""The passes: a program goes in, the changed program comes out. One file per pass, named after it
(`dtp_parallelize.py` holds `dtp-parallelize`)."""
