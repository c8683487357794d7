"""What all commands share: how they are declared, found, parsed, helped, how they print and how errors become exit statuses."""
