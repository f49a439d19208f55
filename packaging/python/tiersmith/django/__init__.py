"""Django's backend: ENGINE = "tiersmith.django" (see base.py)."""
