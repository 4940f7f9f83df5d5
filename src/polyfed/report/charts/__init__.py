"""Figures as plain dictionaries in plotly's form, of which the page draws what is used here."""
