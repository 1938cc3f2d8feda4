-- What was sold in each month, by region.
SELECT date_trunc('month', sold_at) AS month, region, sum(amount) AS amount
FROM sales
GROUP BY month, region
ORDER BY month, region;
